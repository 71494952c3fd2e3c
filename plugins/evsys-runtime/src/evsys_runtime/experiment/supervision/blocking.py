"""Sees from a thread when the event loop itself is blocked, by a plugin that computes or waits in it without
`await`.

Nothing in the loop can notice that, nor end it: Python has no way to end a call from outside. So it is recorded and
reported.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from evsys_runtime.experiment.supervision.stacks import place_of, thread_stack
from evsys_runtime.places import is_known

__all__ = ["BlockedLoop", "loop_watched"]

LOOKS = 10
"""How often it looks in the time after which something is done."""


@attrs.define(kw_only=True, eq=False)
class BlockedLoop:
    """Looks whether a loop still turns.

    Attributes:
        loop: the loop, which runs in the thread `identity`.
        seconds: of standing still after which `dump` is called; after twice as many `tell` is. Each once in a row,
            with the words for it.
        clock: seconds, of any thread.
    """

    loop: asyncio.AbstractEventLoop
    identity: int
    seconds: float
    dump: Callable[[str], None]
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _asked: float | None = None
    _dumped: bool = False
    _told: bool = False

    def look(self) -> None:
        """Ask the loop for a sign of life, and see how long the last one is awaited."""
        if self._asked is None:
            self._asked, self._dumped, self._told = self.clock(), False, False
            self.loop.call_soon_threadsafe(self._answer)
            return
        passed = self.clock() - self._asked
        if passed >= self.seconds and not self._dumped:
            self._dumped = True
            self.dump(self._words(passed))
        if passed >= 2 * self.seconds and not self._told:
            self._told = True
            self.tell(
                f"{self._words(passed)}. Nothing else in this experiment can run meanwhile, and evsys can't end such a call: "
                "kill the process if it never returns, and move the code to a thread (`await asyncio.to_thread(...)`)"
            )

    def _answer(self) -> None:
        self._asked = None

    def _words(self, passed: float) -> str:
        by = place_of(thread_stack(self.identity), known=is_known) or "code of evsys"
        return f"the event loop has been blocked for {passed:,.0f} s by {by}"


@contextmanager
def loop_watched(
    seconds: float, *, dump: Callable[[str], None], tell: Callable[[str], None]
) -> Iterator[None]:
    """Watch the running loop inside, from a thread; see `BlockedLoop`."""
    watch = BlockedLoop(
        loop=asyncio.get_running_loop(),
        identity=threading.get_ident(),
        seconds=seconds,
        dump=dump,
        tell=tell,
    )
    over = threading.Event()

    def watching() -> None:
        while not over.wait(seconds / LOOKS):
            watch.look()

    thread = threading.Thread(target=watching, name="evsys watches the event loop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
