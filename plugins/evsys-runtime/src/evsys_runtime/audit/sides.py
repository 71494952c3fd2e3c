"""The two sides of a comparison: which scorings of an arm count, and its metric by task and by run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import attrs

from evsys_record.proofs import proof_name
from evsys_runtime.audit.evidence import Evidence, Run, Scoring
from evsys_runtime.audit.metrics import TaskMetric

__all__ = [
    "ArmRun",
    "Padding",
    "Side",
    "arm_runs",
    "final_scoring",
    "planned_runs",
    "side_of",
    "untrained_scoring",
]


@attrs.frozen(kw_only=True)
class ArmRun:
    """An arm at one repeat; its stages, if it has some, taken together."""

    arm: str
    run_id: str
    purpose: str
    repeat: int
    completed: bool
    selected_step: int | None
    scorings: tuple[Scoring, ...]


@attrs.frozen(kw_only=True)
class Padding:
    """Rewards for missing samples of `tasks`: the one of `rewards` that makes the metric of a task `highest`, or lowest."""

    tasks: frozenset[str]
    rewards: tuple[float, float]
    highest: bool


@attrs.frozen(kw_only=True)
class Side:
    """An arm, or the weights that it starts from, by the success metric.

    `by_run` has the value of each task by run, for runs that have a score; `values` the mean of each task over these runs. `planned` runs should
    have one. `copies` maps a task to an earlier one that asks the same. `single`: every task has one sample. `drawn` samples of each task were drawn in all runs, `samples` of them have a score.
    """

    name: str
    runs: tuple[str, ...] = ()
    planned: int = 1
    value: float | None = None
    by_run: tuple[Mapping[str, float], ...] = ()
    values: Mapping[str, float] = attrs.field(factory=dict)
    clusters: Mapping[str, str] = attrs.field(factory=dict)
    copies: Mapping[str, str] = attrs.field(factory=dict)
    single: bool = True
    rewards: frozenset[float] = frozenset()
    drawn: int = 0
    samples: Mapping[str, int] = attrs.field(factory=dict)
    hashes: frozenset[tuple[str | None, str | None]] = frozenset()
    invalid: bool = False
    problems: tuple[str, ...] = ()

    @property
    def binary(self) -> bool:
        """Whether each task has one 0/1 outcome."""
        return self.single and len(self.runs) == 1 and set(self.values.values()) <= {0.0, 1.0}


def arm_runs(evidence: Evidence, purpose: str) -> dict[str, list[ArmRun]]:
    """The runs of each arm that have a result, in the order of the plan; the key of an arm without any is there as well."""
    found: dict[str, list[ArmRun]] = {}
    stages: dict[tuple[str, int], list[Run]] = {}
    for run in evidence.runs:
        if run.purpose == purpose:
            stages.setdefault((run.arm, run.repeat), []).append(run)
    for (arm, _), runs in stages.items():
        group = found.setdefault(arm, [])
        if any(run.result for run in runs):
            group.append(_merge_stages(runs))
    return found


def planned_runs(evidence: Evidence, purpose: str) -> dict[str, int]:
    """How many repeats of each arm were planned."""
    repeats = {(run.arm, run.repeat) for run in evidence.runs if run.purpose == purpose}
    return {arm: sum(each == arm for each, _ in repeats) for arm, _ in repeats}


def _merge_stages(runs: Sequence[Run]) -> ArmRun:
    """The end of the last stage, compared with the start of the first one."""
    ended = [run for run in runs if run.result]
    last = runs[-1]
    shown = last if last.completed else next((run for run in ended if not run.completed), ended[-1])
    scorings = tuple(s for s in ended[0].scorings if s.key[1] == 0)
    scorings += tuple(s for s in last.scorings if s.key[1] > 0)
    return ArmRun(
        arm=shown.arm,
        run_id=shown.run_id,
        purpose=shown.purpose,
        repeat=shown.repeat,
        completed=last.completed,
        selected_step=shown.selected_step,
        scorings=scorings,
    )


def final_scoring(run: ArmRun, benchmark: str) -> Scoring | None:
    """The scoring of the weights that count: those of the selected checkpoint, else the last ones; of its proof, if there is one."""
    if not run.completed:
        return None
    found = [s for s in _scorings(run, benchmark) if s.key[1] > 0]
    if run.selected_step is not None:
        found = [s for s in found if s.key[1] == run.selected_step]
    return max(found, key=lambda s: s.key[1], default=None)


def untrained_scoring(run: ArmRun, benchmark: str) -> Scoring | None:
    """The scoring of the weights that a run started from, on the tasks of its final one."""
    return next((s for s in _scorings(run, benchmark) if s.key[1] == 0), None)


def _scorings(run: ArmRun, benchmark: str) -> list[Scoring]:
    own = [s for s in run.scorings if s.key[2] is None]
    proof = [s for s in own if s.key[0] == proof_name(benchmark)]
    return proof or [s for s in own if s.key[0] == benchmark]


def side_of(
    name: str,
    scored: Sequence[tuple[str, Scoring | None]],
    metric: str,
    task_metric: TaskMetric,
    *,
    planned: int,
    left_out: frozenset[str] = frozenset(),
    padding: Padding | None = None,
) -> Side:
    """A side from the scoring of each of its runs."""
    usable: list[tuple[str, Scoring, dict[str, float]]] = []
    for run, scoring in scored:
        if scoring is not None and _has_value(scoring, metric):
            values = _values(scoring, task_metric, left_out, padding)
            if values:
                usable.append((run, scoring, values))
    by_run = tuple(values for *_, values in usable)
    scorings = [scoring for _, scoring, _ in usable]
    return Side(
        name=name,
        runs=tuple(run for run, *_ in usable),
        planned=planned,
        value=_mean([_mean([*each.values()]) for each in by_run]) if by_run else None,
        by_run=by_run,
        values=_task_means(by_run),
        clusters=_union(s.tree["clusters"] for s in scorings),
        copies=_union(s.tree.get("copies") or {} for s in scorings),
        single=all(s.tree["num_samples"] == 1 for s in scorings),
        rewards=frozenset(chain.from_iterable(one for s in scorings for one in s.rewards.values())),
        drawn=sum(s.tree["num_samples"] for s in scorings),
        samples=_samples(scorings),
        hashes=frozenset((s.tree["benchmark_hash"], s.tree["verifier_hash"]) for s in scorings),
        invalid=any(s is not None and s.is_invalid for _, s in scored),
        problems=tuple(_problems(scored, metric)),
    )


def _task_means(by_run: Sequence[Mapping[str, float]]) -> dict[str, float]:
    tasks: dict[str, list[float]] = {}
    for values in by_run:
        for task, value in values.items():
            tasks.setdefault(task, []).append(value)
    return {task: _mean(values) for task, values in tasks.items()}


def _union(maps: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {task: value for each in maps for task, value in each.items()}


def _has_value(scoring: Scoring, metric: str) -> bool:
    value = scoring.tree["metrics"].get(metric)
    return scoring.tree["status"] == "completed" and value is not None and value["value"] is not None


def _values(
    scoring: Scoring, metric: TaskMetric, left_out: frozenset[str], padding: Padding | None
) -> dict[str, float]:
    """The metric of each task; with a padding also of those that lack samples, as far as one side has a score of them."""
    rewards = scoring.rewards
    values = {task: value for task, value in metric.values(rewards).items() if rewards[task]}
    if padding is not None:
        for task in padding.tasks:
            missing = scoring.tree["num_samples"] - len(rewards.get(task, ()))
            if missing > 0:
                ends = [metric.value((*rewards.get(task, ()), *[end] * missing)) for end in padding.rewards]
                known = [end for end in ends if end is not None]
                if known:
                    values[task] = max(known) if padding.highest else min(known)
    return {task: value for task, value in values.items() if task not in left_out}


def _samples(scorings: Sequence[Scoring]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for scoring in scorings:
        for task, rewards in scoring.rewards.items():
            counts[task] = counts.get(task, 0) + len(rewards)
    return counts


def _problems(scored: Sequence[tuple[str, Scoring | None]], metric: str) -> Iterator[str]:
    for run, scoring in scored:
        if scoring is None:
            yield f"{run} has no scoring that counts"
        elif not _has_value(scoring, metric):
            yield f"{run} has no {metric}"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
