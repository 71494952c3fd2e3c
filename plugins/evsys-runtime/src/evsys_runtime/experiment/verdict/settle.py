"""Advice to turn an open verdict into a decision, as one sentence with a number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from evsys.types import Comparison, Settling, SettlingPoint
from evsys_record.text import list_names
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.settling_curve import amounts, settling_curve
from evsys_stats.paired import Paired
from evsys_stats.power import detectable, tasks_to_place

__all__ = ["Advice", "Open", "settling_advice"]

MOST_TIMES = 100
"""Above so many times the tasks that there are, a number of them is not advice."""


_POINTS = 3
"""Effects of the curve put into words, the largest first."""


@attrs.frozen(kw_only=True)
class Open:
    """An inconclusive comparison with the statistics behind it."""

    comparison: Comparison
    paired: Paired
    significant: bool


@attrs.frozen(kw_only=True)
class Advice:
    """Advice as a sentence without its full stop, and in numbers if there are any.

    `curve` has the sample sizes for effects of several sizes, if a minimum effect is still to be chosen.
    """

    words: str
    settling: Settling | None = None
    curve: tuple[SettlingPoint, ...] = ()


def settling_advice(
    winners: Sequence[str], undecided: Sequence[Open], *, question: Question, level: float
) -> Advice | None:
    """The advice; None if nothing is known to help.

    Args:
        winners: arms that won without being confirmed.
        undecided: the open comparisons.
        question: of the experiment: the claim with its margin, against which baseline.
        level: of one comparison at the next look, after correction for all.
    """
    baseline, minimum = question.baseline, question.minimum_effect
    if winners:
        return Advice(words=f"score {list_names(winners)} and {baseline} again on fresh rollouts or seeds")
    if not undecided:
        return None
    closest = max(undecided, key=lambda one: one.paired.effect)
    if minimum > 0:
        return _minimum_effect_advice(closest, minimum, level)
    if question.margin > 0:
        return _margin_advice(closest, question, level)
    return _asking(closest, level)


def _minimum_effect_advice(one: Open, minimum: float, level: float) -> Advice:
    """A set minimum effect is what to aim at, regardless of the effect happened to be this time."""
    seen = detectable(one.paired, level)
    if not one.significant and (seen is None or seen > minimum):
        return _effect_advice(one, minimum, level)
    effect = abs(one.paired.effect)
    tasks = tasks_to_place(one.paired, abs(minimum - effect), level)
    arm, n = one.comparison.arm, one.paired.n
    more = "" if one.paired.seeds is None else ", in as many times more training runs of each recipe,"
    if tasks is None or tasks > MOST_TIMES * n:
        return Advice(
            words=f"another minimum_effect: {arm}'s effect of {one.paired.effect:.3g} is too near {minimum:g} to decide on "
            "which side the true effect is"
        )
    tasks = max(n + 1, tasks)
    runs = None if one.paired.seeds is None else math.ceil(one.comparison.n_seeds * tasks / n)
    return Advice(
        words=f"about {tasks} tasks{more} would show whether {arm}'s effect of {one.paired.effect:.3g} reaches the "
        f"minimum_effect of {minimum:g} ({n} tasks were scored)",
        settling=Settling(arm=arm, tasks=tasks, runs=runs),
    )


def _margin_advice(one: Open, question: Question, level: float) -> Advice:
    """The tasks that narrow the interval until it lies within a margin, which is what `no_worse` and `equal` need."""
    effect, margin, n = one.paired.effect, question.margin, one.paired.n
    gap = margin + effect if question.claim == "no_worse" else margin - abs(effect)
    tasks = tasks_to_place(one.paired, abs(gap), level)
    arm = one.comparison.arm
    if tasks is None or tasks > MOST_TIMES * n:
        return Advice(
            words=f"another margin: {arm}'s effect of {effect:.3g} is too near the margin of {margin:g} to decide on which side the true effect is"
        )
    tasks = max(n + 1, tasks)
    return Advice(
        words=f"about {tasks} tasks would show whether {arm}'s effect of {effect:.3g} is within the margin of {margin:g} ({n} tasks were scored)",
        settling=Settling(arm=arm, tasks=tasks),
    )


def _effect_advice(one: Open, effect: float, level: float) -> Advice:
    amount, settling = _amount(one, effect, level)
    said = f"about {amount} would show an effect of {effect:.3g} for {one.comparison.arm}"
    seen = abs(one.paired.effect)
    if seen > effect * (1 + 1e-9):
        said += f", and {_amount(one, seen, level)[0]} one of {seen:.3g}, as it came up"
    return Advice(words=f"{said} ({one.paired.n} tasks were scored)", settling=settling)


def _amount(one: Open, effect: float, level: float) -> tuple[str, Settling]:
    """The tasks that show an effect, more than there are, and the clusters that they come in; or runs."""
    tasks, runs = amounts(one.paired, effect, level)
    return _amount_words(one.paired, tasks, runs), Settling(arm=one.comparison.arm, tasks=tasks, runs=runs)


def _amount_words(paired: Paired, tasks: int | None, runs: int | None) -> str:
    n, clusters = paired.n, paired.clusters
    parts = [] if tasks is None else [f"{tasks} tasks"]
    if tasks is not None and paired.seeds is None and clusters < n:
        parts = [f"{tasks} tasks in {math.ceil(tasks * clusters / n)} clusters"]
    if runs is not None:
        parts.append(f"{runs} training runs of each recipe")
    return " and ".join(parts)


def _asking(one: Open, level: float) -> Advice:
    """Without a minimum effect no effect is the one to aim at, least of all the one that came up; what each would take helps to choose."""
    curve = settling_curve(one.paired, level)
    told = [(_amount_words(one.paired, each.tasks, each.runs), each.effect) for each in curve[:_POINTS]]
    first, *others = [(amount, effect) for amount, effect in told if amount]
    more = "".join(f", {amount} one of {effect:g}" for amount, effect in others)
    return Advice(
        words=f"a minimum_effect to aim at: for {one.comparison.arm} about {first[0]} would show an effect of {first[1]:g}{more} "
        f"({one.paired.n} tasks were scored)",
        curve=curve,
    )
