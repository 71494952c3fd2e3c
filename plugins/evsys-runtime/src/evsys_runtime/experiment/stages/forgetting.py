"""Forgetting of earlier datasets: the score of each one's benchmark after each stage, and the stop if too little is
retained.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys.types import ArmResult, EvaluationResult, Forgetting, LossTest, MetricValue
from evsys_record import final_scoring, mean_over_repeats, metric_of, untrained_scoring
from evsys_record.scorings import value_of
from evsys_runtime.config.chain import learned_benchmark, stage_name
from evsys_runtime.config.model import ContinualConfig
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.stages.changes import Change, Limit, compare_stages
from evsys_runtime.experiment.verdict.comparison import finite
from evsys_runtime.experiment.verdict.tables import number, signed_text
from evsys_stats.intervals import Interval, student_t_quantile
from evsys_stats.ranges import Range

__all__ = ["START", "forgetting_of", "stop_reason"]

START = "start"
"""The name of the column of the starting weights."""


@attrs.frozen(kw_only=True)
class _Row:
    """A benchmark looked at, by which metric, and the stage (from 1) that it belongs to."""

    bound: BoundBenchmark
    metric: str
    own: int

    @property
    def benchmark(self) -> str:
        return self.bound.name

    @property
    def possible(self) -> Range | None:
        """The values that it can have."""
        return self.bound.metric(self.metric).possible(self.bound.reward_range)

    def change(self, then: Sequence[ArmResult], now: Sequence[ArmResult]) -> Change:
        """Its scores after a later stage against those after its own."""
        metric = self.bound.metric(self.metric)
        return compare_stages(then, now, self.benchmark, metric, self.bound.reward_range)

    def difference(self, then: ArmResult, now: ArmResult) -> float | None:
        """The later score minus the one after its own stage, signed so that below 0 is a loss; None where either is missing."""
        before, after = (value_of(final_scoring(each, self.benchmark), self.metric) for each in (then, now))
        if before is None or after is None:
            return None
        return after - before if self.bound.metric(self.metric).direction == "max" else before - after


type _Cell = tuple[float | None, float | None, float | None]
"""A mean over seeds and the ends of its interval; None where they aren't known."""

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
    rows = _rows(plan, benchmarks)
    chains: dict[str, dict[int, list[ArmConfig]]] = {}
    for arm in plan.arms:
        if rows and arm.stage is not None:
            chains.setdefault(arm.name, {}).setdefault(arm.repeat, []).append(arm)
    return tuple(_matrix(plan, name, rows, seeds, results) for name, seeds in chains.items())


def stop_reason(
    plan: Plan, arm: ArmConfig, results: Mapping[str, ArmResult], benchmarks: Sequence[BoundBenchmark]
) -> str | None:
    """Why a stage isn't begun: after one before it, a loss beyond the limit is shown for an earlier dataset.

    What couldn't be scored stops nothing.
    """
    if arm.stage is None or Limit.from_config(plan.experiment.continual) is None:
        return None
    chain = [each for each in plan.arms if (each.name, each.repeat) == (arm.name, arm.repeat)]
    tests = _loss_tests(plan, _rows(plan, benchmarks), chain[: arm.stage.index], results)
    return next((_test_text(test) for test in tests if test.outcome == "exceeded"), None)


def _loss_tests(
    plan: Plan, rows: Sequence[_Row], chain: Sequence[ArmConfig], results: Mapping[str, ArmResult]
) -> Iterator[LossTest]:
    """The tests before the second stage after a benchmark's own, and before each one that follows, up to the last one of `chain`.

    All tests of a whole chain share its level (Bonferroni), so that it bounds how often a chain ends early that has lost no more than it may.
    """
    continual = plan.experiment.continual
    limit = Limit.from_config(continual)
    if continual is None or limit is None:
        return
    ends = [results.get(arm.run_id) for arm in chain]
    labels, stages = _labels(chain), len(continual.datasets)
    level = continual.level / max(1, sum(max(0, stages - 1 - row.own) for row in rows))
    for column in range(1, len(chain)):
        now = ends[column - 1]
        for row in rows:
            then = ends[row.own - 1] if row.own < column else None
            if then is None or now is None or "skipped" in (then.status, now.status):
                continue
            asked = LossTest(
                run=f"{chain[0].name}-s{chain[0].repeat}",
                benchmark=row.benchmark,
                metric=row.metric,
                stage=labels[column],
                limit=str(limit),
                level=level,
                outcome="undecided",
            )
            yield _loss_test(asked, row.change([then], [now]), limit)


def _loss_test(asked: LossTest, change: Change, limit: Limit) -> LossTest:
    difference = change.signed_difference()
    if difference is None:
        return attrs.evolve(asked, reason=change.reason)
    outcome, p_value = limit.outcome(change, difference, asked.level)
    return attrs.evolve(
        asked,
        outcome=outcome,
        change=difference.effect,
        low=finite(difference.low),
        high=finite(difference.high),
        p_value=p_value,
    )


def _test_text(test: LossTest) -> str:
    interval = f"95 % interval {number(test.low)} to {number(test.high)}"
    return (
        f"after stage {test.stage} {test.benchmark}.{test.metric} has changed by {signed_text(test.change)} ({interval}), "
        f"beyond {test.limit} (p = {test.p_value:.2g}, level {test.level:.2g})"
    )


def _rows(plan: Plan, benchmarks: Sequence[BoundBenchmark]) -> list[_Row]:
    """The benchmarks of the datasets, each once, as that of the first dataset that has it."""
    continual = plan.experiment.continual
    if continual is None:
        return []
    entries = {entry.label: entry for entry in plan.experiment.metadata.benchmarks}
    bound = {benchmark.name: benchmark for benchmark in benchmarks}
    found: dict[str, _Row] = {}
    for index, dataset in enumerate(continual.datasets):
        name = stage_name(dataset.name, index, default="data")
        label = learned_benchmark(name, dataset.benchmark, list(entries))
        if label is None:
            continue
        success = plan.success
        of_success = success is not None and success.benchmark == label
        metric = success.metric if success is not None and of_success else entries[label].metric_names[0]
        found.setdefault(label, _Row(bound=bound[label], metric=metric, own=index + 1))
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


def _retained_share(row: _Row, values: Sequence[MetricValue | None], column: int) -> float | None:
    """The share of what a benchmark's own stage had reached left after another one; None where that was nothing."""
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
    # From here on a row of each is a benchmark, and a column the starting weights or a stage.
    known = [
        [[value for value in of_seeds if value is not None] for of_seeds in zip(*of_row, strict=True)]
        for of_row in zip(*by_seed, strict=True)
    ]
    cells = [
        [_mean_over_seeds(values, row.possible) for values in columns]
        for row, columns in zip(rows, known, strict=True)
    ]
    retention = [
        _retention(row, of_row, len(labels))
        for row, of_row in zip(rows, zip(*by_seed, strict=True), strict=True)
    ]
    chains = list(seeds.values())
    changes = [[_change(row, column, chains, results) for column in range(len(labels))] for row in rows]
    tests = [test for chain in seeds.values() for test in _loss_tests(plan, rows, chain, results)]
    return Forgetting(
        arm=name,
        benchmarks=tuple(row.benchmark for row in rows),
        metrics=tuple(row.metric for row in rows),
        stages=tuple(labels),
        own=tuple(row.own for row in rows),
        values=_part(cells, 0),
        low=_part(cells, 1),
        high=_part(cells, 2),
        scored=tuple(_counts(columns, len(seeds)) for columns in known),
        retention=tuple(retention),
        seeds=len(seeds),
        stopped=tuple(f"{test.run}: {_test_text(test)}" for test in tests if test.outcome == "exceeded"),
        changes=_part(changes, 0),
        change_low=_part(changes, 1),
        change_high=_part(changes, 2),
        tests=tuple(tests),
        **_limits(plan.experiment.continual),
    )


def _limits(continual: ContinualConfig | None) -> dict[str, Any]:
    if continual is None:
        return {}
    return {
        "minimum_retention": continual.minimum_retention,
        "maximum_loss": continual.maximum_loss,
        "level": None if Limit.from_config(continual) is None else continual.level,
    }


def _part(cells: Sequence[Sequence[_Cell]], part: int) -> tuple[tuple[float | None, ...], ...]:
    return tuple(tuple(cell[part] for cell in row) for row in cells)


def _retention(
    row: _Row, of_seeds: Sequence[Sequence[MetricValue | None]], columns: int
) -> tuple[float | None, ...]:
    """The mean over seeds of the share that each stage left; None for stages before the benchmark's own."""
    after = (
        _mean([_retained_share(row, values, column) for values in of_seeds])
        for column in range(row.own, columns)
    )
    return *[None] * row.own, *after


def _counts(columns: Sequence[Sequence[MetricValue]], seeds: int) -> tuple[int, ...]:
    """How many seeds each value is of. All begin with the same weights, which are scored once where nothing is drawn."""
    start, *stages = (len(values) for values in columns)
    return seeds if start else 0, *stages


def _change(
    row: _Row, column: int, chains: Sequence[Sequence[ArmConfig]], results: Mapping[str, ArmResult]
) -> _Cell:
    """The mean change over the seeds that have both scores, with its 95 % interval over tasks and seeds."""
    if column <= row.own:
        return None, None, None
    pairs = [
        (then, now, difference)
        for chain in chains
        if (then := results.get(chain[row.own - 1].run_id)) is not None
        and (now := results.get(chain[column - 1].run_id)) is not None
        and (difference := row.difference(then, now)) is not None
    ]
    if not pairs:
        return None, None, None
    change = row.change([then for then, _, _ in pairs], [now for _, now, _ in pairs])
    by_seed = [difference for _, _, difference in pairs]
    paired = change.signed_difference()
    if paired is None or change.pair is None:
        return math.fsum(by_seed) / len(by_seed), None, None
    seeds, width = _half_width(by_seed), change.pair.largest or math.inf
    low = paired.effect - math.hypot(paired.effect - paired.low, seeds)
    high = paired.effect + math.hypot(paired.high - paired.effect, seeds)
    return paired.effect, finite(max(low, -width)), finite(min(high, width))


def _mean_over_seeds(known: Sequence[MetricValue], possible: Range | None) -> _Cell:
    """The mean over seeds with its 95 % interval.

    Both which tasks there are and which seeds were drawn are left to chance, independently: the squares of how far each of them alone leads away
    from the mean add up. Of tasks that is what the scorings say, of seeds it is by Student's t.
    """
    numbers = [value.value for value in known if value.value is not None]
    if not numbers:
        return None, None, None
    whole = mean_over_repeats(known)
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
