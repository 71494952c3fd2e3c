"""Estimates the cost of a confirmation before the winner is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evsys.types import RunDeviation
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.confirm_entries import deciding_entry
from evsys_runtime.config.model import FEWEST_SEEDS, MOST_SEEDS, SEEDS_BY_DEFAULT, ConfirmConfig
from evsys_runtime.config.plan import Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.estimate.design import Designs
from evsys_runtime.experiment.estimate.results import PlannedArm, PlannedConfirm
from evsys_runtime.experiment.search.confirm_seeds import UNKNOWN_NOISE
from evsys_runtime.experiment.verdict.run_deviation import deviation_words

__all__ = ["planned_confirm", "scorings_of_run"]


def planned_confirm(
    plan: Plan, benchmarks: Sequence[BoundBenchmark], arms: Sequence[PlannedArm], designs: Designs
) -> PlannedConfirm | None:
    """The most that it takes; None where the plan has none, or compares one arm only.

    Args:
        plan: a valid plan.
        benchmarks: its entries with their tasks.
        arms: what each arm takes, stage by stage.
        designs: what the comparison will be able to see.
    """
    confirm, baseline = plan.experiment.confirm, plan.experiment.metadata.baseline
    if confirm is None:
        return None
    seeds, fewest, reason = planned_seeds(confirm, designs.deviation())
    design = designs.confirmation_design(seeds)
    if design is None:
        return None
    takes: dict[str, list[PlannedArm]] = {}
    stages = {arm.label: arm.name for arm in plan.arms}
    for arm in arms:
        if arm.purpose == "candidate":
            takes.setdefault(stages[arm.arm], []).append(arm)
    base = takes.pop(baseline, [])
    if len(takes) == 1:
        return None
    benchmark = next(b for b in benchmarks if b.name == deciding_entry(plan))

    def most[N: (int, float)](value: Callable[[PlannedArm], N | None], zero: N) -> N | None:
        """Of one seed after another: the arm that takes most, and the baseline."""
        known = [_sum([value(stage) for stage in stages], zero) for stages in takes.values()]
        own = _sum([value(stage) for stage in base], zero)
        if own is None or None in known:
            return None
        return seeds * (max((each for each in known if each is not None), default=zero) + own)

    repeats = seeds or plan.experiment.n_repeats
    sides = 1 if baseline == BASE_MODEL else 2
    # What was trained before is scored once; against starting weights these are scored as well.
    each = _most_scorings(benchmark, [*takes.values(), base]) if seeds else 1
    scorings = None if each is None else repeats * (sides * each + (baseline == BASE_MODEL))
    return PlannedConfirm(
        benchmark=benchmark.name,
        seeds=seeds,
        fewest_seeds=fewest,
        seeds_reason=reason,
        runs=repeats * sides,
        rollouts=None if scorings is None else scorings * len(benchmark.tasks) * benchmark.num_samples,
        steps=most(lambda arm: arm.steps, 0),
        trained_tokens=most(lambda arm: arm.trained_tokens, 0),
        seconds=most(lambda arm: arm.seconds, 0.0),
        cost_usd=most(lambda arm: arm.cost_usd, 0.0),
        design=design,
    )


def _most_scorings(benchmark: BoundBenchmark, chains: Sequence[Sequence[PlannedArm]]) -> int | None:
    """The number of scorings of an entry in the longest chain of stages; None if that of any chain is unknown."""
    counts = [
        _sum([scorings_of_run(benchmark, stage.steps) for stage in chain], 0) for chain in chains if chain
    ]
    known = [count for count in counts if count is not None]
    return max(known) if len(known) == len(counts) else None


def planned_seeds(confirm: ConfirmConfig, deviation: RunDeviation | None) -> tuple[int, int, str | None]:
    """The most and the fewest seeds of a confirmation, and why these; None where the file gives the number."""
    if confirm.seeds is not None:
        return confirm.seeds, confirm.seeds, None
    if deviation is None:
        return SEEDS_BY_DEFAULT, SEEDS_BY_DEFAULT, UNKNOWN_NOISE
    words = "as many as show the winner's expected effect with 80 % power"
    return MOST_SEEDS, FEWEST_SEEDS, f"{words}; {deviation_words(deviation)}"


def scorings_of_run(benchmark: BoundBenchmark, steps: int | None) -> int | None:
    """Of trained weights: on the way, and in the end if that isn't one of these."""
    if benchmark.run_every is None:
        return 1
    if steps is None:
        return None
    return steps // benchmark.run_every + (steps % benchmark.run_every > 0)


def _sum[N: (int, float)](values: Sequence[N | None], zero: N) -> N | None:
    total = zero
    for value in values:
        if value is None:
            return None
        total += value
    return total
