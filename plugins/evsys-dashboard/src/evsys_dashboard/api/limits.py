"""How many requests a key, or an address, may send."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from evsys_dashboard.api.errors import RefusedError

__all__ = ["Rates"]

_MOST_KNOWN = 4096


class Rates:
    """A bucket of requests for each sender, which fills again at a steady rate.

    Args:
        per_second: requests that a sender may send on average.
        burst: requests that one may send at once.
        clock: seconds on a clock that is never set back.
    """

    def __init__(
        self, *, per_second: float = 50.0, burst: float = 400.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, sender: str) -> None:
        """Count a request.

        Raises:
            RefusedError: the sender has sent too many.
        """
        now = self._clock()
        left, since = self._left.get(sender, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second) - 1.0
        if left < 0:
            wait = math.ceil(-left / self._per_second)
            self._left[sender] = (left + 1.0, now)
            raise RefusedError(429, "too many requests", retry_after=max(wait, 1))
        self._left[sender] = (left, now)
        self._left.move_to_end(sender)
        if len(self._left) > _MOST_KNOWN:
            self._left.popitem(last=False)
