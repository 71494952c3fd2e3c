"""How far a scoring is: what listeners hear of it, and when nothing has been heard of it for too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from evsys.errors import RolloutError

if TYPE_CHECKING:
    from evsys.types import Rollout
    from evsys_runtime.evaluation.benchmarks import BoundBenchmark

__all__ = ["Progress", "advancing"]

MOST_TOLD = 100
"""How often listeners hear of the progress of one scoring."""


class Progress:
    """How many tasks of a scoring have all their samples."""

    def __init__(self, benchmark: BoundBenchmark) -> None:
        self._missing = {task.task_id: benchmark.num_samples for task in benchmark.tasks}
        self.done, self.total = 0, len(self._missing)
        self._stride = max(1, self.total // MOST_TOLD)

    def counts(self, rollout: Rollout) -> bool:
        """Count a rollout; True when it is time to report it."""
        missing = self._missing[rollout.task_id] = self._missing.get(rollout.task_id, 0) - 1
        if missing:
            return False
        self.done += 1
        return self.done % self._stride == 0 or self.done == self.total


@asynccontextmanager
async def advancing(
    seconds: float,
    hung: Callable[[str], None] = lambda _what: None,
    *,
    held: Callable[[], bool] = lambda: False,
) -> AsyncGenerator[Callable[[], None]]:
    """A block that must make progress: it calls the yielded function whenever something ended. `hung` is called
    just before it's given up. While `held`, nothing has to end.

    Raises:
        RolloutError: nothing ended for `seconds`; the block was cancelled.
    """
    loop = asyncio.get_running_loop()
    message = f"no rollout ended for {seconds:g} s, so the scoring was given up"
    deadline, last = asyncio.timeout(None), loop.time()

    def advanced() -> None:
        nonlocal last
        last = loop.time()

    def look() -> None:
        if held():
            advanced()
        left = last + seconds - loop.time()
        if left > 0:
            alarms.append(loop.call_later(left, look))
            del alarms[0]
        else:
            hung(message)
            deadline.reschedule(loop.time())

    alarms = [loop.call_later(seconds, look)]
    try:
        async with deadline:
            yield advanced
    except TimeoutError as exc:
        if not deadline.expired():
            raise
        raise RolloutError(
            message,
            hint="an engine, an agent or a verifier of this entry waits for something that never comes",
        ) from exc
    finally:
        alarms[0].cancel()


@asynccontextmanager
async def time_limit(
    seconds: float, hung: Callable[[], None], late: Callable[[], Exception] | None = None
) -> AsyncGenerator[None]:
    """A block that must be over in time; `hung` is called just before it is cancelled.

    Raises:
        TimeoutError: it wasn't; or what `late` makes instead.
    """
    alarm = asyncio.get_running_loop().call_later(seconds, hung)
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            yield
    except TimeoutError as exc:
        if not deadline.expired():
            raise
        error = TimeoutError(f"not over within {seconds:g} s") if late is None else late()
        raise error from exc
    finally:
        alarm.cancel()
