"""What would turn an open verdict into a decision, as one sentence with a number in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from evsys.types import Comparison, Settling
from evsys_runtime.experiment.verdict.paired import Paired
from evsys_runtime.experiment.verdict.power import detectable, runs_to_show, tasks_to_place, tasks_to_show
from evsys_runtime.listed import listed

__all__ = ["Advice", "Open", "what_would_settle"]

MOST_TIMES = 100
"""Above so many times the tasks that there are, a number of them is no advice."""


@attrs.frozen(kw_only=True)
class Open:
    """An inconclusive comparison with the statistics behind it."""

    comparison: Comparison
    paired: Paired
    significant: bool


@attrs.frozen(kw_only=True)
class Advice:
    """What would settle it in a sentence without its full stop, and in numbers where there are any."""

    words: str
    settling: Settling | None = None


def what_would_settle(
    winners: Sequence[str], undecided: Sequence[Open], *, baseline: str, minimum: float, level: float
) -> Advice | None:
    """What to do; None where nothing is known to help.

    Args:
        winners: arms that won without being confirmed.
        undecided: the comparisons that are open.
        baseline: what they are compared with.
        minimum: the smallest effect that matters, 0 where none is set.
        level: of one comparison, after correction for all.
    """
    if winners:
        return Advice(words=f"score {listed(winners)} and {baseline} again on fresh rollouts or seeds")
    if not undecided:
        return None
    closest = max(undecided, key=lambda one: one.paired.effect)
    if minimum > 0:
        return _at_minimum(closest, minimum, level)
    effect = abs(closest.paired.effect)
    if effect <= 1e-12 * closest.paired.scale:
        return Advice(
            words="a minimum_effect to aim at: without one, no number of tasks shows that two arms are equal"
        )
    return _shown(closest, effect, level)


def _at_minimum(one: Open, minimum: float, level: float) -> Advice:
    """A set minimum effect is what to aim at, whatever the effect happened to be this time."""
    seen = detectable(one.paired, level)
    if not one.significant and (seen is None or seen > minimum):
        return _shown(one, minimum, level)
    effect = abs(one.paired.effect)
    tasks = tasks_to_place(one.paired, abs(minimum - effect))
    arm, n = one.comparison.arm, one.paired.n
    more = "" if one.paired.seeds is None else ", in as many times more training runs of each recipe,"
    if tasks is None or tasks > MOST_TIMES * n:
        return Advice(
            words=f"another minimum_effect: {arm}'s effect of {one.paired.effect:.3g} is too near {minimum:g} to tell on which "
            "side of it the truth lies"
        )
    tasks = max(n + 1, tasks)
    runs = None if one.paired.seeds is None else math.ceil(one.comparison.n_seeds * tasks / n)
    return Advice(
        words=f"about {tasks} tasks{more} would tell whether {arm}'s effect of {one.paired.effect:.3g} reaches the "
        f"minimum_effect of {minimum:g} ({n} were scored)",
        settling=Settling(arm=arm, tasks=tasks, runs=runs),
    )


def _shown(one: Open, effect: float, level: float) -> Advice:
    amount, settling = _amount(one, effect, level)
    said = f"about {amount} would show an effect of {effect:.3g} for {one.comparison.arm}"
    seen = abs(one.paired.effect)
    if seen > effect * (1 + 1e-9):
        said += f", and {_amount(one, seen, level)[0]} one of {seen:.3g}, as it came up"
    return Advice(words=f"{said} ({one.paired.n} were scored)", settling=settling)


def _amount(one: Open, effect: float, level: float) -> tuple[str, Settling]:
    """The tasks that show an effect, more than there are, and the clusters that they come in; or runs."""
    n, clusters = one.paired.n, one.paired.clusters
    if one.paired.seeds is not None and one.paired.seeds.by_seed > 0:
        return _runs_and_tasks(one, effect, level)
    tasks = max(n + 1, tasks_to_show(one.paired, effect, level))
    words = f"{tasks} tasks" + (f" in {math.ceil(tasks * clusters / n)} clusters" if clusters < n else "")
    return words, Settling(arm=one.comparison.arm, tasks=tasks)


def _runs_and_tasks(one: Open, effect: float, level: float) -> tuple[str, Settling]:
    """More training runs where they are enough; else both, with an equal part of the error for each."""
    runs = runs_to_show(one.paired, effect, level)
    if runs is not None:
        return f"{runs} training runs of each recipe", Settling(arm=one.comparison.arm, runs=runs)
    part = effect / math.sqrt(2.0)
    seeds = one.paired.seeds
    assert seeds is not None
    of_tasks = attrs.evolve(one.paired, standard_error=math.sqrt(seeds.by_task), seeds=None)
    tasks = max(one.paired.n + 1, tasks_to_show(of_tasks, part, level))
    of_runs = attrs.evolve(one.paired, seeds=attrs.evolve(seeds, by_task=0.0))
    runs = runs_to_show(of_runs, part, level)
    more = "" if runs is None else f" and {runs} training runs of each recipe"
    return f"{tasks} tasks{more}", Settling(arm=one.comparison.arm, tasks=tasks, runs=runs)
