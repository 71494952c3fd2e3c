"""Scores that several arms want are made once, also where those arms run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

from evsys.types import EvaluationResult

__all__ = ["SharedScores"]


class SharedScores:
    """Scores by what they depend on.

    Of the arms that said that they want a score (`enter`), the one that comes first in the plan makes it, even where another is
    there earlier: so each time the same arm has it on record, and pays for it. If none said so, the first that comes makes it.
    If that arm is cut off, the next one tries.

    Args:
        retry_failed: it tries as well, where the scoring was carried out and failed.
    """

    def __init__(self, *, retry_failed: bool = True) -> None:
        self._retry_failed = retry_failed
        self._known: dict[str, EvaluationResult] = {}
        self._wanted: dict[str, set[str]] = {}
        self._changed = asyncio.Event()

    def remember(self, key: str, result: EvaluationResult) -> None:
        """A score on record already; of several with one key the first."""
        self._known.setdefault(key, result)

    def enter(self, run_id: str, keys: Iterable[str]) -> None:
        """An arm begins that is going to want these scores; arms begin in the order of the plan."""
        self._wanted[run_id] = set(keys) - self._known.keys()

    def leave(self, run_id: str) -> None:
        """An arm has ended, with or without its scores."""
        self._wanted.pop(run_id, None)
        self._tell()

    def known(self, key: str) -> EvaluationResult | None:
        """A score made; None where there is none yet."""
        return self._known.get(key)

    async def score(
        self,
        key: str,
        run_id: str,
        make: Callable[[], Awaitable[EvaluationResult]],
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> EvaluationResult | None:
        """Wait for the score that another arm makes, or call `make` where it is this arm's turn. It waits inside
        `waiting()`.

        Returns:
            The other arm's score; None where this arm was to make it, regardless of the result.
        """
        while key not in self._known:
            if self._maker(key) in (run_id, None):
                await self._make_score(key, run_id, make)
                return None
            with waiting():
                await self._changed.wait()
        return self._known[key]

    async def _make_score(
        self, key: str, run_id: str, make: Callable[[], Awaitable[EvaluationResult]]
    ) -> None:
        wanted = self._wanted.setdefault(run_id, set())
        wanted.add(key)
        try:
            result = await make()
            if result.fully_scored or not self._retry_failed:
                self._known[key] = result
        finally:
            wanted.discard(key)
            self._tell()

    def _maker(self, key: str) -> str | None:
        return next((run_id for run_id, keys in self._wanted.items() if key in keys), None)

    def _tell(self) -> None:
        """Wake those who wait, who look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
