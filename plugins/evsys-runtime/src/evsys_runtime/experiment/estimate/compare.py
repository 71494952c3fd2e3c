"""`evsys compare`: two experiments on record, or two runs, side by side: configs, scores on the tasks that both have, cost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys import Registry
from evsys.errors import ConfigError, EvsysError, StoreError
from evsys.types import ArmResult, EvaluationResult, Usage
from evsys_record import PastExperiment, final_scoring, is_proof
from evsys_record.differing import differences
from evsys_record.experiment_names import run_called
from evsys_record.files import read_json
from evsys_record.history import past_experiment, runs_of
from evsys_record.index import Index
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import MIN_TASKS
from evsys_runtime.evaluation.metrics import BoundMetric, bind_metric
from evsys_runtime.experiment.estimate.results import ComparedArms, ComparedMetric, ComparedSide, Comparing
from evsys_runtime.experiment.insight.evidence import Evidence, PastArm
from evsys_runtime.experiment.verdict.comparison import NOT_A_MEAN, align, finite, largest_difference
from evsys_runtime.experiment.verdict.scores import arm_score
from evsys_stats.paired import paired_difference

__all__ = ["NOTHING_IN_COMMON", "Subject", "compare"]

NOTHING_IN_COMMON = "nothing was scored on the same tasks by the same verifier on both sides"


@attrs.frozen(kw_only=True)
class Subject:
    """One side of a requested comparison: an experiment of an index, or an arm or a run of it, which `part` names."""

    index: Index
    experiment_id: str
    part: str | None = None


@attrs.frozen(kw_only=True, eq=False)
class _Side:
    """The record of one side: its arms with their results, or one arm or one run alone."""

    past: PastExperiment
    part: str | None
    run_id: str | None
    arms: Mapping[str, PastArm]
    results: Mapping[str, Sequence[ArmResult]]
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.past.experiment_id + (f"/{self.part}" if self.part else "")


def compare(one: Subject, other: Subject, registry: Registry) -> Comparing:
    """Set two experiments side by side, arm by arm of the same name, or two arms or runs.

    Args:
        one: the reference.
        other: compared with it: an effect above 0 is a higher number here.
        registry: of the metrics.

    Raises:
        ConfigError: no such arm or run; or arms of the two sides can't be matched.
        StoreError: a record can't be read.
    """
    sides = (_side(one), _side(other))
    pairs = _pairs(*sides)
    first, second = ({pair[place] for pair in pairs} for place in (0, 1))
    metrics = [row for pair in pairs for row in _metrics(sides, pair, registry, several=len(pairs) > 1)]
    warnings = [warning for side in sides for warning in side.warnings]
    if not any(row.one is not None and row.reason is None for row in metrics):
        warnings.append(NOTHING_IN_COMMON)
    return Comparing(
        one=_compared_side(sides[0]),
        other=_compared_side(sides[1]),
        arms=tuple(
            ComparedArms(
                one=pair[0],
                other=pair[1],
                differences=differences(_leaves(sides[0], pair[0]), _leaves(sides[1], pair[1])),
            )
            for pair in pairs
        ),
        only_one=tuple(sorted(sides[0].arms.keys() - first)),
        only_other=tuple(sorted(sides[1].arms.keys() - second)),
        metrics=tuple(metrics),
        warnings=tuple(warnings),
    )


def _side(named: Subject) -> _Side:
    past = past_experiment(named.index, named.experiment_id)
    if past is None or past.problem is not None:
        why = "" if past is None else f": {past.problem}"
        raise StoreError(f"{named.index.experiments / named.experiment_id} can't be read{why}")
    evidence = Evidence(named.index)
    arms = {arm.name: arm for arm in evidence.arms_of(past)}
    if not arms:
        raise StoreError(f"{named.experiment_id} has no resolved.json that this version reads")
    run_id = None if named.part is None else _run_id(named, named.part, arms)
    part = named.part if run_id is None else run_id
    if run_id is not None:
        alone = {name: tuple(run for run in arm.runs if run.run_id == run_id) for name, arm in arms.items()}
        arms = {name: attrs.evolve(arms[name], runs=runs) for name, runs in alone.items() if runs}
    elif part is not None:
        arms = {part: arms[part]}
    results: dict[str, list[ArmResult]] = {}
    for name, arm in arms.items():
        found = [
            None if run.folder is None else evidence.result(arm.directory, run.folder) for run in arm.runs
        ]
        results[name] = [result for result in found if result is not None]
    warnings = [f"{past.experiment_id}: {mark.says}" for mark in past.marks]
    if past.status in ("running", "crashed"):
        warnings.append(f"{past.experiment_id} is {past.status}: it counts as far as it came")
    return _Side(past=past, part=part, run_id=run_id, arms=arms, results=results, warnings=tuple(warnings))


def _run_id(named: Subject, part: str, arms: Collection[str]) -> str | None:
    """The id of the run named by its folder, or by its id or how that begins; None if an arm has this very name."""
    runs = runs_of(named.index, named.experiment_id)
    for each in runs:
        if part in (each.folder, each.run_id):
            return each.run_id
    return None if part in arms else run_called(part, [each.run_id for each in runs], named.experiment_id)


def _pairs(one: _Side, other: _Side) -> list[tuple[str, str]]:
    """Arms that belong together: the only one of each side, else those of the same name."""
    if len(one.arms) == len(other.arms) == 1:
        return [(next(iter(one.arms)), next(iter(other.arms)))]
    common = [name for name in one.arms if name in other.arms]
    if not common:
        arms = [f"{side.past.experiment_id} has {', '.join(side.arms)}" for side in (one, other)]
        raise ConfigError(
            f"no arm of one has the name of an arm of the other: {'; '.join(arms)}",
            hint="name two arms or runs: EXPERIMENT/ARM, EXPERIMENT/RUN",
        )
    return [(name, name) for name in common]


def _leaves(side: _Side, name: str) -> dict[str, Any]:
    """The leaves that can change the results of an arm: its config, its entries, its rows, the versions of its
    plugins, and a run's seed.
    """
    arm = side.arms[name]
    found = {**arm.leaves, **arm.scored_on}
    if side.run_id is None:
        found["base_seed"] = next((base for base, _ in arm.base_seeds), None)
    run = next((run for run in arm.runs if run.folder is not None), None)
    if run is None or run.folder is None:
        return found
    try:
        facts = read_json(arm.directory / "runs" / run.folder / "run.json")
    except StoreError:
        facts = {}
    found |= {f"plugins.{plugin}": version for plugin, version in (facts.get("plugins") or {}).items()}
    if run.data_hash is not None:
        found["data.rows"] = run.data_hash
    if side.run_id is not None:
        found["seed"] = run.seed
    return found


def _compared_side(side: _Side) -> ComparedSide:
    results = [result for group in side.results.values() for result in group]
    used = sum((result.usage for result in results), Usage())
    single = results[0] if side.run_id is not None and results else None
    return ComparedSide(
        name=side.name,
        experiment_id=side.past.experiment_id,
        run_id=side.run_id,
        status=side.past.status if single is None else single.status,
        verdict=side.past.verdict,
        subject=side.past.subject,
        marks=side.past.marks,
        steps=sum(result.run.steps for result in results if result.run is not None) if results else None,
        trained_tokens=used.trained_tokens if results else None,
        seconds=side.past.seconds if side.part is None else sum(result.seconds for result in results),
        cost_usd=None if used.without_price or not results else used.cost_usd,
    )


def _metrics(
    sides: tuple[_Side, _Side], pair: tuple[str, str], registry: Registry, *, several: bool
) -> Iterator[ComparedMetric]:
    """Each metric of each entry that both sides were scored on after training."""
    arms = pair[0] if pair[0] == pair[1] else f"{pair[0]}, {pair[1]}"
    label = arms if several or pair[0] == pair[1] else f"{pair[0]} -> {pair[1]}"
    found = [_last_evaluations(side.results[name]) for side, name in zip(sides, pair, strict=True)]
    for benchmark, one in found[0].items():
        other = found[1].get(benchmark)
        if other is None:
            continue
        changed = _benchmark_difference(one, other)
        bound = {} if changed else _bind_metrics(sides[0].arms[pair[0]], benchmark, one, registry)
        for name, value in one.metrics.items():
            if name not in other.metrics:
                continue
            row = ComparedMetric(
                benchmark=benchmark, split=one.split, metric=name, direction=value.direction, arms=label
            )
            if changed:
                yield attrs.evolve(row, reason=changed)
            else:
                groups = [side.results[arm] for side, arm in zip(sides, pair, strict=True)]
                yield _difference(row, groups, bound.get(name), one.clusters)


def _last_evaluations(results: Sequence[ArmResult]) -> dict[str, EvaluationResult]:
    """The last scoring of each entry by the first run that has one."""
    own = [e for result in results for e in result.evaluations if e.model is None]
    names = dict.fromkeys(e.benchmark for e in own if not is_proof(e.benchmark))
    found: dict[str, EvaluationResult] = {}
    for name in names:
        scorings = (final_scoring(result, name) for result in results)
        last = next((each for each in scorings if each is not None and each.status == "completed"), None)
        if last is not None:
            found[name] = last
    return found


def _benchmark_difference(one: EvaluationResult, other: EvaluationResult) -> str | None:
    """Why two scorings of one name can't be compared."""
    if one.benchmark_hash != other.benchmark_hash:
        return "can't be compared: its tasks aren't the same on both sides"
    if one.verifier_hash != other.verifier_hash:
        return "can't be compared: its verifier isn't the same on both sides"
    return None


def _bind_metrics(
    arm: PastArm, benchmark: str, scored: EvaluationResult, registry: Registry
) -> dict[str, BoundMetric | str]:
    """The entry's metrics by what results call them; a text says why one can't be made."""
    entry = next((entry for entry in arm.benchmarks if entry.get("name") == benchmark), {})
    specs = entry.get("metrics") or [{"kind": "mean_reward"}]
    if len(specs) != len(scored.metrics):
        return {}
    found: dict[str, BoundMetric | str] = {}
    for name, spec in zip(scored.metrics, specs, strict=True):
        try:
            in_name = registry.find(
                "metric", spec["kind"]
            ).params  # the k of pass@k, which a resolved file says twice
            params = {key: value for key, value in (spec.get("params") or {}).items() if key not in in_name}
            found[name] = bind_metric(
                spec["kind"],
                resolve(params),
                registry=registry,
                pass_threshold=entry.get("pass_threshold"),
                label=name,
            )
        except EvsysError as error:
            found[name] = error.message
    return found


def _difference(
    row: ComparedMetric,
    groups: Sequence[Sequence[ArmResult]],
    metric: BoundMetric | str | None,
    clusters: Mapping[str, str],
) -> ComparedMetric:
    if not isinstance(metric, BoundMetric):
        why = metric or "the entry's metrics differ from the recorded ones"
        values = [_value(row, group) for group in groups]
        return attrs.evolve(row, reason=f"no interval: {why}", one=values[0], other=values[1])
    one, other = (
        arm_score(str(place), group, row.benchmark, row.metric, metric.task_value)
        for place, group in enumerate(groups)
    )
    row = attrs.evolve(row, one=one.value, other=other.value)
    if one.value is None or other.value is None:
        return attrs.evolve(row, reason="not available on both sides")
    if len(one.hashes | other.hashes) > 1:
        return attrs.evolve(
            row, one=None, other=None, reason="can't be compared: tasks or verifiers changed between runs"
        )
    if not (one.is_mean and other.is_mean):
        return attrs.evolve(row, reason=f"no interval: {NOT_A_MEAN}")
    common = len(one.values.keys() & other.values.keys())
    missing = len(one.values.keys() ^ other.values.keys())
    if common < MIN_TASKS:
        few = f"can't be compared: {common} tasks were scored on both sides, and at least {MIN_TASKS} are needed"
        return attrs.evolve(row, n_tasks=common, n_missing=missing, reason=few)
    pair = align(other, one, clusters, largest_difference(metric.possible, other, one)).pair
    paired = paired_difference(
        pair.arm, pair.baseline, pair.clusters, binary=one.binary and other.binary, largest=pair.largest
    )
    return attrs.evolve(
        row,
        effect=paired.effect,
        low=finite(paired.low),
        high=finite(paired.high),
        p_value=paired.p_value,
        method=paired.method,
        n_tasks=common,
        n_missing=missing,
    )


def _value(row: ComparedMetric, group: Sequence[ArmResult]) -> float | None:
    """The metric as runs recorded it, averaged over them, where its tasks can't be distinguished."""
    scorings = [final_scoring(result, row.benchmark) for result in group]
    values = [e.metrics[row.metric].value for e in scorings if e is not None and row.metric in e.metrics]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
