"""The limits of a server: bounds on bodies, queues, memory and time."""

from __future__ import annotations

import attrs

__all__ = ["Limits"]


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds. A request that exceeds one is refused with the status that clients wait upon (429), or can't (413).

    Attributes:
        body_bytes: longest body of `forward_backward`; then status 413.
        conversation_bytes: longest body of chat and text completions; then 413. As parsed JSON it can take fifty
            times as much.
        sample_bytes: longest body of a sample request, or of a batch's names; then 413.
        document_bytes: longest body of anything else; then 413.
        sessions: sessions that last at once; then 429.
        outstanding: requests whose answers no one has fetched yet; then 429.
        sampling: sample requests that are drawn or wait for it at once, each of as many samples as it asks for;
            then 429.
        waiting: training requests of one model that wait for their turn; then 429.
        waiting_bytes: bytes of those.
        models: models trained at once; then 400.
        live_samplers: snapshots kept in memory; others are restored when they are asked.
        unnamed_samplers: snapshots without a name that a session keeps on disk; the least recently used goes first.
        poll_seconds: how long a request for an answer is held; clients ask again.
        patience_seconds: how long a model waits for a request missing in its order.
        session_seconds: how long a session lasts without a sign of life.
    """

    body_bytes: int = 64 << 20
    conversation_bytes: int = 16 << 20
    sample_bytes: int = 4 << 20
    document_bytes: int = 256 << 10
    sessions: int = 1024
    outstanding: int = 16384
    sampling: int = 4096
    waiting: int = 1024
    waiting_bytes: int = 1 << 30
    models: int = 64
    live_samplers: int = 8
    unnamed_samplers: int = 32
    poll_seconds: float = 20.0
    patience_seconds: float = 360.0
    session_seconds: float = 300.0
