"""How many tasks and training runs show an effect of one size or another, and what these take.

The one place for this trade-off: a conclusion without a minimum effect asks for one with such a curve, and a plan can do the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from evsys.types import ArmResult, EvaluationResult, SettlingPoint, Usage
from evsys_stats.paired import Paired
from evsys_stats.power import detectable, runs_to_show, tasks_to_show

__all__ = ["EFFECTS", "Costs", "amounts", "settling_curve"]

EFFECTS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Effects that a curve has points at, as shares of the largest possible difference."""

_FINER = (0.5, 0.25)
"""Shares of the smallest detectable effect that replace `EFFECTS` if the design detects them all."""


@attrs.frozen(kw_only=True)
class Costs:
    """The cost of a training run without its evaluations, and of the evaluation of one task: seconds, and US
    dollars, None without a known price.
    """

    run_seconds: float
    run_usd: float | None
    task_seconds: float
    task_usd: float | None

    @classmethod
    def of(cls, results: Sequence[ArmResult], benchmark: str) -> Costs | None:
        """The averages over completed runs scored on a benchmark; None if there are none."""
        runs = [arm for arm in results if arm.status == "completed"]
        every = [each for arm in runs for each in arm.evaluations]
        scorings = [
            each
            for each in every
            if each.benchmark == benchmark
            and each.status == "completed"
            and each.model is None
            and each.tasks
        ]
        if not scorings:
            return None
        tasks = sum(each.tasks for each in scorings)
        priced = not any(arm.usage.without_price for arm in runs)
        scored = _scoring_usd(every)
        trained = sum(_usd(arm.usage) for arm in runs) - scored
        seconds = sum(arm.seconds for arm in runs) - sum(each.seconds for each in every)
        return cls(
            run_seconds=max(0.0, seconds) / len(runs),
            run_usd=max(0.0, trained) / len(runs) if priced else None,
            task_seconds=sum(each.seconds for each in scorings) / tasks,
            task_usd=_scoring_usd(scorings) / tasks if priced else None,
        )

    def of_point(self, point: SettlingPoint, *, runs: int, tasks: int, sides: int) -> SettlingPoint:
        """The point with what an experiment of its size takes, each of `runs` runs scored once.

        Args:
            point: its tasks and runs.
            runs: of each side, if the point names none.
            tasks: that each is scored on, if the point names none.
            sides: that are trained: 1 against an untrained model, 2 against an arm.
        """
        trained = sides * (point.runs or runs)
        scored = trained * (point.tasks or tasks)
        known = self.run_usd is not None and self.task_usd is not None
        usd = trained * (self.run_usd or 0.0) + scored * (self.task_usd or 0.0)
        return attrs.evolve(
            point,
            seconds=round(trained * self.run_seconds + scored * self.task_seconds, 1) or None,
            cost_usd=round(usd, 6) if known else None,
        )


def _usd(usage: Usage) -> float:
    return usage.cost_usd or 0.0


def _scoring_usd(scorings: Sequence[EvaluationResult]) -> float:
    return sum(_usd(each.usage) + _usd(each.judged) for each in scorings)


def settling_curve(paired: Paired, level: float = 0.05) -> tuple[SettlingPoint, ...]:
    """The tasks and runs that show effects which the design doesn't, with 80 % power at `level`, the largest effect first."""
    seen = detectable(paired, level)
    effects = [share * paired.scale for share in EFFECTS if seen is None or share * paired.scale < seen]
    if not effects and seen is not None:
        effects = [float(f"{seen * share:.2g}") for share in _FINER]
    points = []
    for effect in effects:
        tasks, runs = amounts(paired, effect, level)
        points.append(SettlingPoint(effect=effect, tasks=tasks, runs=runs))
    return tuple(points)


def amounts(paired: Paired, effect: float, level: float) -> tuple[int | None, int | None]:
    """The tasks, more than there are, and the training runs of each recipe that show an effect; None where what there is would do.

    More training runs alone where they are enough; else both, with an equal part of the error for each.
    """
    seeds = paired.seeds
    if seeds is None or seeds.by_seed <= 0:
        return max(paired.n + 1, tasks_to_show(paired, effect, level)), None
    runs = runs_to_show(paired, effect, level)
    if runs is not None:
        return None, runs
    part = effect / math.sqrt(2.0)
    of_tasks = attrs.evolve(paired, standard_error=math.sqrt(seeds.by_task), seeds=None)
    of_runs = attrs.evolve(paired, seeds=attrs.evolve(seeds, by_task=0.0))
    return max(paired.n + 1, tasks_to_show(of_tasks, part, level)), runs_to_show(of_runs, part, level)
