"""Who is connected: sessions with their models and samplers, kept alive by heartbeats."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import attrs

from evsys_server.errors import RefusedError

__all__ = ["SamplingSession", "Session", "Sessions"]

KEPT = 1000
"""Ended sessions that can still be looked up."""


@attrs.frozen(kw_only=True)
class SamplingSession:
    """The source of a sampling client in a session: a base model's name or a checkpoint's address.

    `unnamed` is a snapshot that nothing else samples from.
    """

    id: str
    session_id: str
    number: int
    source: str
    base_model: str
    unnamed: bool = False


@attrs.define(kw_only=True, eq=False)
class Session:
    """One client.

    Attributes:
        id: as the server made it.
        fields: what the client said of itself.
        created: seconds since 1970.
        seen: when it was last heard of, on a clock that only continues.
        status: `None` while it lasts, else how it ended, as the wire says it.
        models: ids of the models made in it, in order.
        samplers: its sampling sessions by id, the last used at the end.
    """

    id: str
    fields: Mapping[str, Any]
    created: float
    seen: float
    status: Mapping[str, Any] | None = None
    models: list[str] = attrs.field(factory=list)
    samplers: OrderedDict[str, SamplingSession] = attrs.field(factory=OrderedDict)

    def surplus(self, most: int) -> list[SamplingSession]:
        """Unnamed snapshots beyond the `most` used last."""
        unnamed = [sampling for sampling in self.samplers.values() if sampling.unnamed]
        return unnamed[: max(0, len(unnamed) - most)]


class Sessions:
    """All sessions of a server.

    Args:
        clock: seconds on a clock that only continues.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def create(self, fields: Mapping[str, Any]) -> Session:
        """A new one."""
        session = Session(id=uuid4().hex, fields=fields, created=time.time(), seen=self._clock())
        self._sessions[session.id] = session
        return session

    def find(self, id: str) -> Session | None:
        """A session, ended ones among them as long as they are kept."""
        return self._sessions.get(id)

    def active(self, id: str) -> Session:
        """A session that lasts; it was heard of now.

        Raises:
            RefusedError: there is none, or it ended.
        """
        session = self._sessions.get(id)
        if session is None or session.status is not None:
            why = "has ended" if session is not None else "is unknown; was the server restarted?"
            raise RefusedError(410, f"session {id} {why}")
        session.seen = self._clock()
        return session

    def all(self) -> list[Session]:
        """All that can be looked up, newest first."""
        return list(reversed(self._sessions.values()))

    def silent(self, seconds: float) -> list[Session]:
        """Those that weren't heard of for so long."""
        limit = self._clock() - seconds
        return [s for s in self._sessions.values() if s.status is None and s.seen < limit]

    def lasting(self) -> list[Session]:
        """Those that haven't ended."""
        return [session for session in self._sessions.values() if session.status is None]

    def end(self, session: Session, status: Mapping[str, Any]) -> None:
        """Note how it ended; the first word counts. The oldest ended ones are forgotten."""
        session.status = session.status or status
        session.samplers.clear()
        ended = [other for other in self._sessions.values() if other.status is not None]
        for other in ended[: max(0, len(ended) - KEPT)]:
            del self._sessions[other.id]
