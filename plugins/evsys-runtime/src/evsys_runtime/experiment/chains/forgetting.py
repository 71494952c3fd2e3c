"""What is left of earlier datasets: the score of each one's benchmark after each stage, and when too little is left to go on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import attrs

from evsys.types import ArmResult, EvaluationResult, Forgetting, MetricValue
from evsys_runtime.config.chain import learned_benchmark, stage_name
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.intervals import Interval, student_t_quantile
from evsys_runtime.evaluation.ranges import Range
from evsys_runtime.experiment.verdict.scores import final_scoring, metric_of, untrained_scoring
from evsys_runtime.experiment.verdict.tables import number, over_repeats

__all__ = ["START", "forgetting_of", "why_stopped"]

START = "start"
"""What the column of the starting weights is called."""

_ROUNDING = 1e-9
"""What is left by less may be the limit itself: 0.72 / 0.9 is a little below 0.8."""


@attrs.frozen(kw_only=True)
class _Row:
    """A benchmark that is looked at, by which metric, and the stage (from 1) that it belongs to; `possible` are its values."""

    benchmark: str
    metric: str
    own: int
    possible: Range | None = None


type _Scores = Sequence[Sequence[MetricValue | None]]
"""A row a benchmark, a column a stage, the starting weights before the first."""


def forgetting_of(
    plan: Plan, results: Mapping[str, ArmResult], benchmarks: Sequence[BoundBenchmark]
) -> tuple[Forgetting, ...]:
    """A matrix an arm; none where the arms don't learn dataset after dataset, or no dataset has a benchmark.

    Args:
        plan: with every arm.
        results: those that there are, by run.
        benchmarks: the entries, which know what values are possible.
    """
    bound = {benchmark.name: benchmark for benchmark in benchmarks}
    rows = [
        attrs.evolve(
            row, possible=bound[row.benchmark].metric(row.metric).possible(bound[row.benchmark].reward_range)
        )
        for row in _rows(plan)
    ]
    chains: dict[str, dict[int, list[ArmConfig]]] = {}
    for arm in plan.arms:
        if rows and arm.stage is not None:
            chains.setdefault(arm.name, {}).setdefault(arm.repeat, []).append(arm)
    return tuple(_matrix(plan, name, rows, seeds, results) for name, seeds in chains.items())


def why_stopped(plan: Plan, arm: ArmConfig, results: Mapping[str, ArmResult]) -> str | None:
    """Why a stage isn't begun: at the end of one before it less was left of an earlier dataset than has to be.

    What couldn't be scored stops nothing.
    """
    limit = None if plan.experiment.continual is None else plan.experiment.continual.minimum_retention
    if limit is None or arm.stage is None:
        return None
    chain = [each for each in plan.arms if (each.name, each.repeat) == (arm.name, arm.repeat)]
    rows = _rows(plan)
    scores = _scores(rows, chain, results)
    for column in range(1, arm.stage.index):
        for row, values in zip(rows, scores, strict=True):
            left = _left(row, values, column) if row.own < column else None
            if left is not None and left < limit - _ROUNDING:
                return (
                    f"after stage {_labels(chain)[column]} {number(left)} is left of what {row.benchmark}.{row.metric} was, "
                    f"less than minimum_retention {limit:g}"
                )
    return None


def _rows(plan: Plan) -> list[_Row]:
    """The benchmarks of the datasets, each once, as that of the first dataset that has it."""
    continual = plan.experiment.continual
    if continual is None:
        return []
    entries = {entry.label: entry for entry in plan.experiment.metadata.benchmarks}
    found: dict[str, _Row] = {}
    for index, dataset in enumerate(continual.datasets):
        name = stage_name(dataset.name, index, default="data")
        label = learned_benchmark(name, dataset.benchmark, list(entries))
        if label is None:
            continue
        success = plan.success
        of_success = success is not None and success.benchmark == label
        metric = success.metric if success is not None and of_success else entries[label].metric_names[0]
        found.setdefault(label, _Row(benchmark=label, metric=metric, own=index + 1))
    return list(found.values())


def _labels(chain: Sequence[ArmConfig]) -> list[str]:
    return [START, *(arm.stage.label for arm in chain if arm.stage is not None)]


def _scores(rows: Sequence[_Row], chain: Sequence[ArmConfig], results: Mapping[str, ArmResult]) -> _Scores:
    """The scores of one arm at one seed."""
    ended = [results.get(arm.run_id) for arm in chain]
    return [
        [
            None if ended[0] is None else _value(untrained_scoring(ended[0], row.benchmark), row.metric),
            *(
                None if each is None else _value(final_scoring(each, row.benchmark), row.metric)
                for each in ended
            ),
        ]
        for row in rows
    ]


def _value(scoring: EvaluationResult | None, metric: str) -> MetricValue | None:
    value = metric_of(scoring, metric)
    return value if value is not None and value.value is not None else None


def _left(row: _Row, values: Sequence[MetricValue | None], column: int) -> float | None:
    """The share of what a benchmark's own stage had reached that is left after another one; None where that was nothing."""
    then, now = values[row.own], values[column]
    if then is None or now is None or then.value is None or now.value is None:
        return None
    above, below = (now.value, then.value) if then.direction == "max" else (then.value, now.value)
    return above / below if below > 0 else None


def _matrix(
    plan: Plan,
    name: str,
    rows: Sequence[_Row],
    seeds: Mapping[int, Sequence[ArmConfig]],
    results: Mapping[str, ArmResult],
) -> Forgetting:
    labels = _labels(next(iter(seeds.values())))
    by_seed = [_scores(rows, chain, results) for chain in seeds.values()]
    known = [
        [
            [value for scores in by_seed if (value := scores[place][column]) is not None]
            for column in range(len(labels))
        ]
        for place in range(len(rows))
    ]
    cells = [
        [_over_seeds(values, row.possible) for values in columns]
        for row, columns in zip(rows, known, strict=True)
    ]
    left = [
        [
            _mean([_left(row, scores[place], column) for scores in by_seed]) if column >= row.own else None
            for column in range(len(labels))
        ]
        for place, row in enumerate(rows)
    ]
    continual = plan.experiment.continual
    stopped = [why for chain in seeds.values() if (why := _stopped(plan, chain, results)) is not None]
    return Forgetting(
        arm=name,
        benchmarks=tuple(row.benchmark for row in rows),
        metrics=tuple(row.metric for row in rows),
        stages=tuple(labels),
        own=tuple(row.own for row in rows),
        values=tuple(tuple(cell[0] for cell in row) for row in cells),
        low=tuple(tuple(cell[1] for cell in row) for row in cells),
        high=tuple(tuple(cell[2] for cell in row) for row in cells),
        scored=tuple(_counts(columns, len(seeds)) for columns in known),
        retention=tuple(map(tuple, left)),
        seeds=len(seeds),
        minimum_retention=None if continual is None else continual.minimum_retention,
        stopped=tuple(stopped),
    )


def _counts(columns: Sequence[Sequence[MetricValue]], seeds: int) -> tuple[int, ...]:
    """How many seeds each value is of. All begin with the same weights, which are scored once where nothing is drawn."""
    start, *stages = (len(values) for values in columns)
    return seeds if start else 0, *stages


def _stopped(plan: Plan, chain: Sequence[ArmConfig], results: Mapping[str, ArmResult]) -> str | None:
    why = why_stopped(plan, chain[-1], results)
    return None if why is None else f"{chain[0].name}-s{chain[0].repeat}: {why}"


def _over_seeds(
    known: Sequence[MetricValue], possible: Range | None
) -> tuple[float | None, float | None, float | None]:
    """The mean over seeds with its 95 % interval.

    Both which tasks there are and which seeds were drawn are left to chance, independently: the squares of how far each of them alone leads away
    from the mean add up. Of tasks that is what the scorings say, of seeds it is by Student's t.
    """
    numbers = [value.value for value in known if value.value is not None]
    if not numbers:
        return None, None, None
    whole = over_repeats(known)
    mean = math.fsum(numbers) / len(numbers)
    if whole.low is None or whole.high is None:
        return mean, None, None
    by_seed = _half_width(numbers)
    low = mean - math.hypot(mean - whole.low, by_seed)
    high = mean + math.hypot(whole.high - mean, by_seed)
    interval = Interval(low, high, "").within(possible, mean)
    return mean, interval.low, interval.high


def _half_width(numbers: Sequence[float]) -> float:
    """Half of the interval of a mean over seeds; 0 of a single seed, of which nothing is known."""
    if len(numbers) < 2:
        return 0.0
    error = statistics.stdev(numbers) / math.sqrt(len(numbers))
    return error * student_t_quantile(0.975, len(numbers) - 1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
