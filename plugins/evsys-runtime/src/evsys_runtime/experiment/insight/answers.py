"""Which open questions later experiments answered: one about the same recipe, metric, baseline and claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from evsys.types import Comparison
from evsys_record import PastExperiment
from evsys_record.marks import disqualifying
from evsys_runtime.experiment.insight.known_experiments import Known

__all__ = ["Answers"]

_DECIDED = ("win", "tie", "loss")


@attrs.frozen(kw_only=True, eq=False)
class Answers:
    """The decided arms, by the question about each: when, with which outcome, and under which disqualifying marks."""

    known: Known
    found: Mapping[object, list[tuple[str, str, frozenset[str]]]]

    @classmethod
    def from_experiments(cls, known: Known, standing: Iterable[PastExperiment]) -> Answers:
        """The answers that experiments with a verdict give.

        Args:
            known: every experiment on record.
            standing: those whose conclusions count.
        """
        found: dict[object, list[tuple[str, str, frozenset[str]]]] = {}
        for past in standing:
            if past.verdict in ("SUPPORTED", "REFUTED"):
                for each in past.comparisons:
                    if each.outcome in _DECIDED:
                        answer = (past.moment, each.outcome, disqualifying(past.marks))
                        found.setdefault(known.arm_question(past, each.arm), []).append(answer)
        return cls(known=known, found=found)

    def undecided_arms(self, past: PastExperiment) -> list[Comparison]:
        """The arms about which an inconclusive experiment leaves a question open; none once one of them won in a later one.

        A conclusion with a disqualifying mark that `past` doesn't have answers nothing.
        """
        scored = [each for each in past.comparisons if each.effect is not None]
        asked = [each for each in scored if each.outcome not in _DECIDED] or scored
        outcomes = [self._outcome(past, each.arm) for each in asked]
        if "win" in outcomes:
            return []
        return [each for each, outcome in zip(asked, outcomes, strict=True) if outcome is None]

    def _outcome(self, past: PastExperiment, arm: str) -> str | None:
        own = disqualifying(past.marks)
        later = [
            (moment, outcome)
            for moment, outcome, marks in self.found.get(self.known.arm_question(past, arm), ())
            if moment > past.moment and marks <= own
        ]
        return max(later)[1] if later else None
