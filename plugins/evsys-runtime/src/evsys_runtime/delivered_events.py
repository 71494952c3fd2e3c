"""Scorings that a listener hears of, and those that it missed since another run had them made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from evsys.types import EvaluationResult, RunContext

__all__ = ["Heard"]


@attrs.define
class Heard:
    """The scorings of one run that a listener has heard of."""

    _keys: set[tuple[str, int, str | None]] = attrs.field(factory=set)

    def hear(self, evaluation: EvaluationResult) -> None:
        """Note one, when it is reported."""
        self._keys.add(_key(evaluation))

    def missed(self, ctx: RunContext, evaluations: Iterable[EvaluationResult]) -> Iterator[EvaluationResult]:
        """The events that weren't delivered. For a later attempt there are none: it knows the reports of earlier
        ones.
        """
        if ctx.attempt == 1:
            yield from (each for each in evaluations if _key(each) not in self._keys)


def _key(evaluation: EvaluationResult) -> tuple[str, int, str | None]:
    return evaluation.benchmark, evaluation.step, evaluation.model
