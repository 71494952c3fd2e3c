"""The verdict where a winner was tried again: its fresh runs decide, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from evsys.types import Comparison, Confirmed, NoiseFloor, RunDeviation, Verdict
from evsys_record.text import list_names
from evsys_runtime.experiment.verdict.comparison import ComparedArm, missing_repeats
from evsys_runtime.experiment.verdict.noise import held_by_noise, noise_words
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.tables import signed_text, stated_interval
from evsys_stats.claims import claim_verb

__all__ = ["Confirming", "confirmed_verdict", "repeat_words"]


@attrs.frozen(kw_only=True)
class Confirming:
    """A confirmation's question: that on the deciding entry, and the number of planned runs of each side.

    `seeds_reason` says why there are so many seeds, None if the file gives their number.
    """

    question: Question
    winner: str
    seeds: int
    planned: Mapping[str, int]
    seeds_reason: str | None = None

    def with_deviation(self, deviation: RunDeviation | None) -> Confirming:
        """The same, with what is known of how far runs of similar recipes differ."""
        return attrs.evolve(self, question=attrs.evolve(self.question, deviation=deviation))

    def with_noise(self, noise: NoiseFloor) -> Confirming:
        """The same, with what is known of equal runs."""
        return attrs.evolve(self, question=attrs.evolve(self.question, noise=noise))


def confirmed_verdict(
    confirming: Confirming, confirmed: Confirmed, compared: ComparedArm, others: Sequence[Comparison]
) -> tuple[Verdict, str]:
    """The verdict and why.

    Args:
        confirming: what was asked.
        confirmed: what came of it.
        compared: the statistics behind it.
        others: the first comparisons of the arms that weren't tried again.
    """
    again, baseline = confirmed.comparison, confirming.question.baseline
    chosen = f"{again.arm} was the best of {len(others) + 1} arms"
    tried = repeat_words(confirming.seeds)
    if compared.invalid is not None:
        return "INVALID", f"{chosen}, but {tried} it can't be compared: {compared.invalid}"
    if again.outcome == "unscored":
        return "CANDIDATE", f"{chosen}, but it wasn't confirmed: {again.reason}"
    if again.outcome == "win":
        lost = missing_repeats(compared)
        if lost is not None:
            return "CANDIDATE", f"{chosen} and beats {baseline} when {tried}, but {lost}"
        verb = claim_verb("better", confirming.question.margin, baseline)
        said = f"{again.arm}, the best of {len(others) + 1} arms, {verb} when {tried}"
        limit = (
            ""
            if again.claim != "checkpoint"
            else "; enough to choose this checkpoint, not to expect the same of another run of its recipe"
        )
        return "SUPPORTED", f"{said}{limit}"
    if again.outcome == "inconclusive":
        return "CANDIDATE", f"{chosen}, but {tried} {_undecided_text(confirming.question, again)}"
    fell = f"{chosen}, but {tried} it {'ties with' if again.outcome == 'tie' else 'loses to'} {baseline}"
    won = [c.arm for c in others if c.outcome == "win"]
    if won:
        return "CANDIDATE", f"{fell}; {list_names(won)} also won, but {_was(won)} not confirmed"
    left = [c.arm for c in others if c.outcome not in ("tie", "loss")]
    if left:
        return "INCONCLUSIVE", f"{fell}; the numbers of {list_names(left)} are inconclusive"
    return "REFUTED", f"{fell}, as every other arm does"


def repeat_words(seeds: int) -> str:
    """The outcome of a confirmation, in two or three words."""
    return "evaluated again" if seeds == 0 else "retrained"


def _undecided_text(question: Question, again: Comparison) -> str:
    if again.effect is None:
        return f"it is unknown whether it beats {question.baseline}: {again.reason}"
    if question.noise is not None and held_by_noise(question, again):
        return f"its effect of {noise_words(question.noise, again)}"
    p = "" if again.p_value is None else f", p = {again.p_value:.2g}"
    if again.low is not None and again.low > 0 and question.margin == 0:
        return f"the effect of {signed_text(again.effect)} isn't significant after correction{p}"
    ends, at = stated_interval(again)
    wanted = "an effect" if question.minimum_effect == 0 else f"an effect of {question.minimum_effect:g}"
    return f"the numbers neither show nor exclude {wanted}: {signed_text(again.effect)} ({at} interval {ends}{p})"


def _was(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"
