"""What a request does to an experiment. All of it happens in the event loop, so that two who ask at once come one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evsys_runtime.experiment.control.listening import Peer
from evsys_runtime.experiment.control.server import Reply, refusal
from evsys_runtime.experiment.state.session import Session

__all__ = ["Requests"]


class Requests:
    """The requests that an experiment carries out.

    Args:
        session: the experiment.
        changed: is called after each that changed something.
    """

    def __init__(self, session: Session, *, changed: Callable[[], None] = lambda: None) -> None:
        self._session = session
        self._changed = changed

    def carry_out(self, request: Mapping[str, Any], peer: Peer) -> Reply:
        """Carry out a request, or refuse it."""
        name = request.get("request")
        return refusal(f"unknown request {name!r}", "known: status")
