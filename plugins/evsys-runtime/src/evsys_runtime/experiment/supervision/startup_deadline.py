"""Supervises the work before runs have their watchdogs: reported if it lasts long, and given up if it never ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from logging import getLogger

from evsys.errors import EvsysError, stalled_at
from evsys_runtime.evaluation.progress import time_limit
from evsys_runtime.experiment.supervision.blocking import loop_watched
from evsys_runtime.experiment.supervision.stacks import place_in_threads
from evsys_runtime.places import is_known

__all__ = ["beforehand"]

TOLD_AFTER_SECONDS = 60.0
"""Time after which a wait is reported on standard error, since there is no record yet."""


@asynccontextmanager
async def beforehand(what: str, *, seconds: float, boundary: str, plugin: str) -> AsyncIterator[None]:
    """A block that has to be over in time, though nothing watches it.

    Args:
        what: is being done, for messages, such as "the benchmarks are read".
        seconds: after which it is given up.
        boundary: whose failure that is.
        plugin: what is waited for there.

    Raises:
        EvsysError: it took longer; an error of the boundary, which says where it was.
    """
    told_after = min(TOLD_AFTER_SECONDS, seconds / 2)
    places: list[str] = []

    def hung() -> None:
        places.extend(filter(None, [place_in_threads(known=is_known)]))

    def late() -> EvsysError:
        at = f" (at {places[0]})" if places else ""
        return stalled_at(
            boundary,
            plugin,
            f"waited {seconds:,g} s while {what}, and gave up{at}",
            hint="where such a wait is healthy, raise `watchdog.floor_seconds`",
        )

    telling = asyncio.get_running_loop().call_later(
        told_after, _tell, f"still waiting while {what}: {told_after:,g} s by now"
    )
    try:
        with loop_watched(told_after / 2, dump=lambda _words: None, tell=_tell):
            async with time_limit(seconds, hung, late):
                yield
    finally:
        telling.cancel()


def _tell(text: str) -> None:
    getLogger("evsys.experiment").warning(text)  # without a handler it goes to standard error
