"""The watchdog of one attempt at an arm: a stalled attempt is recorded and ended.

A sign of life is a heartbeat of the algorithm, a finished step, a line of the record, incoming rows. If none comes
for `factor` times the median step, at least for `floor_seconds`, the stacks of the arm's tasks and of all threads
go into its record, and its work is cancelled. Time in which the event loop itself was blocked doesn't count, since
nothing could have moved; `blocking.py` watches that from a thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from statistics import median
from typing import Any

import attrs

from evsys.errors import PLUGIN_FAILURES, EvsysError, StoreError, entered, stalled_at
from evsys.protocols import Log
from evsys_record.run_record import RunRecord
from evsys_runtime.accounting.clock import Clock, SystemClock
from evsys_runtime.config.model import WatchdogConfig
from evsys_runtime.evaluation.progress import time_limit
from evsys_runtime.experiment.supervision.stacks import (
    place_in_threads,
    place_of,
    places_in_threads,
    stack_of,
    stacks,
    tasks_where,
)
from evsys_runtime.places import is_known

__all__ = ["STACKS", "Watchdog", "is_stall", "watchdog_of"]

STACKS = "stacks.txt"
"""The file of a run's record that has the stacks."""

GRACE_SECONDS = 150.0
"""How long what is cancelled may take to end: longer than its scorings and its backend's teardown may."""

LOOKS = 4
"""How often it looks, at least, in `floor_seconds`."""

STEPS = 101
"""Steps whose median counts, the last ones."""

LATE_SECONDS = 1.0
"""A watchdog that wakes up this late was blocked, as was everything else."""

CHANCE_SECONDS = 60.0
"""The time for everything to show progress after that, at most half of the bound."""

_watched: ContextVar[object] = ContextVar("evsys_watched", default=None)


def is_stall(error: BaseException) -> bool:
    """True for an error that a deadline or a watchdog made of something that never came back."""
    return isinstance(error, EvsysError) and bool(error.facts.get("stalled"))


@attrs.define(kw_only=True, eq=False)
class Watchdog:
    """Watches the work of one arm.

    Attributes:
        run_id: of the arm.
        settings: of the experiment file.
        keep: records stacks.
        seal: closes the record to work that can't be ended.
        clock: seconds.
        stalled: why the work was ended, once it was.
        place: where it stalled.
        left_running: it couldn't be ended, and may still be running.
    """

    run_id: str
    settings: WatchdogConfig
    keep: Callable[[str], None]
    seal: Callable[[], None] = lambda: None
    clock: Clock = attrs.field(factory=SystemClock)
    place: str | None = None
    stalled: str | None = None
    left_running: bool = False
    _error: EvsysError | None = None
    _last: float = 0.0
    _stepped: float | None = None
    _steps: deque[float] = attrs.field(factory=lambda: deque(maxlen=STEPS))
    _at: tuple[str, str] = ("run", "evsys")
    _elsewhere: int = 0
    _allowed: list[Callable[[], float]] = attrs.field(factory=list)
    _counts: list[Callable[[], int]] = attrs.field(factory=list)
    _counted: list[int] = attrs.field(factory=list)
    _stuck_before: Mapping[int, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.beat()

    # --- what moves -----------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Something moved. From any thread."""
        self._last = self.clock.now()

    def awaits(self, boundary: str, plugin: str) -> None:
        """From here on the arm waits for this, wherever no `evsys.errors.boundary` says it more closely."""
        self._at = (boundary, plugin)
        self.beat()

    def follow(self, count: Callable[[], int]) -> None:
        """The value of `count` changes while there is progress, such as the number of rows read. It is only called
        now and then.
        """
        self._counts.append(count)

    def allow(self, seconds: Callable[[], float]) -> None:
        """Something may take so long by a deadline of its own, and is left to it; 0 while nothing is under way."""
        self._allowed.append(seconds)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Inside, the arm waits for another one, which has a watchdog of its own, or holds."""
        self._elsewhere += 1
        try:
            yield
        finally:
            self._elsewhere -= 1
            if self._stepped is not None:
                self._stepped = self.clock.now()  # none of that belongs to a step
            self.beat()

    def evsys_run_started(self) -> None:
        """A hook: the first step begins."""
        self._stepped = self.clock.now()
        self.beat()

    def evsys_step_finished(self) -> None:
        """A hook: a step is done; how long they take says how long nothing may move."""
        now = self.clock.now()
        if self._stepped is not None:
            self._steps.append(now - self._stepped)
        self._stepped = self._last = now

    @property
    def bound(self) -> float:
        """Seconds that nothing may move."""
        step = median(self._steps) if self._steps else 0.0
        allowed = max((seconds() for seconds in self._allowed), default=0.0)
        return max(self.settings.floor_seconds, self.settings.factor * step, 1.1 * allowed)

    # --- what doesn't ---------------------------------------------------------------------------------------------

    async def watch[T](self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work()`, which runs in a task of its own so that it can be left behind.

        Raises:
            EvsysError: nothing moved; an error of the boundary that was waited at, and `is_stall`. The work was cancelled.
        """
        self._stuck_before = places_in_threads(known=is_known)
        task = asyncio.create_task(self._enter(work), name=self.run_id)
        outcome = _Outcome(task)
        watching = asyncio.create_task(self._watching(task, outcome))
        try:
            result, error = await outcome
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if self._error is None or (here is not None and here.cancelling()):
                raise
        finally:
            watching.cancel()
        if self._error is not None:
            raise self._error
        if error is not None:
            raise error
        made: T = result
        return made

    async def _enter[T](
        self, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[T | None, BaseException | None]:
        """The outcome of the work; a `SystemExit` of a plugin would end the event loop if it left a task, and an
        unrequested `CancelledError` would lose its place.
        """
        _watched.set(self)
        try:
            return await work(), None
        except PLUGIN_FAILURES as exc:
            return None, exc
        except asyncio.CancelledError as exc:
            here = asyncio.current_task()
            if here is None or here.cancelling():
                raise
            return None, exc

    async def _watching(self, task: asyncio.Task[Any], outcome: _Outcome) -> None:
        """Sleep until nothing has moved for too long; then end the work, and no longer wait for it than that may take."""
        while True:
            self._count()
            begun = self.clock.now()
            left = self._last + self.bound - begun
            if left <= 0:
                break
            # Now and then, since the bound falls when a scoring ends that may take longer than all else.
            nap = min(left, self.settings.floor_seconds / LOOKS)
            await self.clock.sleep(nap)
            late = self.clock.now() - begun - nap
            if late > LATE_SECONDS:
                chance = min(CHANCE_SECONDS, self.bound / 2)
                self._last = max(self._last + late, self.clock.now() - self.bound + chance)
        error = self._report(task)
        self._error = error
        task.cancel()
        _, left_running = await asyncio.wait({task}, timeout=GRACE_SECONDS)
        if left_running:
            error.message += f". It couldn't be ended within {GRACE_SECONDS:g} s, and was left running"
            self.left_running = True
            self.seal()
            outcome.give_up()

    def _count(self) -> None:
        """Progress since the last look counts as if it were made now."""
        counted = [count() for count in self._counts]
        if self._elsewhere or counted != self._counted:
            self._counted = counted
            self.beat()

    def _report(self, task: asyncio.Task[Any]) -> EvsysError:
        """Put on record where everything is, and say at which boundary nothing moves."""
        boundary, plugin = entered(task.get_context()) or self._at
        self.place = self._place(task)
        place = f" (at {self.place})" if self.place else ""
        self.stalled = f"nothing moved for {self.bound:,g} s while waiting for {boundary} {plugin!r}{place}"
        self.dump(self.stalled)
        error = stalled_at(
            boundary,
            plugin,
            f"{self.stalled}; {STACKS} in its record has the stack traces",
            run_id=self.run_id,
            hint="where such a wait is healthy, raise `watchdog.floor_seconds`",
        )
        error.__cause__ = TimeoutError(self.stalled)
        return error

    def _place(self, task: asyncio.Task[Any]) -> str | None:
        """Which line of the project, or of what is installed, the work waits in; None where that is several or none."""
        if (own := place_of(stack_of(task), known=is_known)) is not None:
            return own
        others = {place_of(stack_of(other), known=is_known) for other in self._tasks()} - {None}
        if len(others) == 1:
            return others.pop()
        return place_in_threads(known=is_known, before=self._stuck_before)

    def dump(self, reason: str) -> None:
        """Put the stacks of this arm's tasks, and of all threads, on record."""
        self.keep(f"{reason}\n\n{stacks(self._tasks())}")

    def _tasks(self) -> list[asyncio.Task[Any]]:
        """Its tasks, in any event loop."""
        return tasks_where(lambda task: task.get_context().get(_watched) is self)

    @asynccontextmanager
    async def deadline(self, seconds: float, boundary: str, plugin: str, what: str) -> AsyncIterator[None]:
        """A block that must be over in so many seconds; else it is cancelled, with the stacks on record.

        Raises:
            EvsysError: it wasn't; see `over`.
        """
        message = f"{what} of {boundary} {plugin!r} took longer than {seconds:g} s"
        told = f"{message}; {STACKS} in its record has the stack traces"
        late = partial(stalled_at, boundary, plugin, told, run_id=self.run_id)
        async with time_limit(seconds, partial(self.dump, message), late):
            yield


def watchdog_of(record: RunRecord, settings: WatchdogConfig, log: Log) -> Watchdog:
    """The watchdog of a run recorded there; whatever continues record is a sign of life as well."""

    def keep(text: str) -> None:
        with suppress(StoreError):  # a full disk must not keep the watchdog from ending what hangs
            try:
                log.info("stacks.dumped", reason=text.partition("\n")[0], file=STACKS)
                record.add_text(STACKS, text)
            except StoreError as error:
                log.warning("stacks.not_kept", reason=error.message)

    watch = Watchdog(run_id=record.run_id, settings=settings, keep=keep, seal=record.seal)
    watch.follow(lambda: record.appended)
    return watch


class _Outcome(asyncio.Future[Any]):
    """The outcome of a task, which its waiter may give up. As with a task itself, to cancel the one who waits
    cancels the task, at once and not a turn of the loop later.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        super().__init__()
        self._task = task
        task.add_done_callback(self._follow)

    def cancel(self, msg: Any | None = None) -> bool:
        return self._task.cancel(msg)

    def give_up(self) -> None:
        """End the wait, regardless of the task."""
        if not self.done():
            super().cancel()

    def _follow(self, task: asyncio.Task[Any]) -> None:
        if self.done():
            return
        if task.cancelled():
            super().cancel()
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())
