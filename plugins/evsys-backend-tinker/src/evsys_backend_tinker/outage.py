"""An unreachable server, as against an address that is wrong: its breaker, and whether it has ever answered this
process.

Runs under way wait for a server by themselves (`Waiting`). They report to its breaker, so that an experiment begins
no further run meanwhile, and ends if the server stays away for long.
"""

from __future__ import annotations

import threading

from evsys_runtime import shared_breaker
from evsys_runtime.accounting.breaker import Breaker, BreakerSettings

__all__ = ["breaker_of", "has_answered", "note_answer"]

_FAILURES = 3
_OPEN_AFTER = 30.0  # seconds

_lock = threading.Lock()
_known: dict[str, Breaker] = {}


def breaker_of(base_url: str, *, dead_after: float) -> Breaker:
    """The breaker of a server, the same for all runs of this process.

    Args:
        base_url: the server's address.
        dead_after: seconds after which runs give it up; the breaker opens before that.
    """
    settings = BreakerSettings(failures=_FAILURES, open_after=min(_OPEN_AFTER, dead_after / 2))
    return shared_breaker(f"the server at {base_url}", settings)


def note_answer(breaker: Breaker) -> None:
    """The server has answered: from here on silence means that it is down."""
    with _lock:
        _known[breaker.service] = breaker


def has_answered(breaker: Breaker) -> bool:
    """True where the server has answered this process before."""
    return breaker.service in _known
