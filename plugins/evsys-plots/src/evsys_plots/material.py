"""The data of plots: the record of an experiment, read from its files alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.types import ArmResult, EvaluationResult
from evsys_record import Experiment, is_proof, result_tree
from evsys_record import Run as RecordedRun

__all__ = ["Line", "Material", "Run", "material_of"]

type Points = tuple[tuple[int, float | None], ...]
"""Steps and values; None where a value wasn't finite."""


@attrs.frozen(kw_only=True)
class Run:
    """A run on record: its training metrics by name, its evaluations, and its result, None before it ends.

    `stage` distinguishes runs of one repeat: the part of the run's id after the repeat, empty for most.
    """

    arm: str
    repeat: int
    stage: str = ""
    metrics: Mapping[str, Points] = attrs.field(factory=dict)
    evaluations: tuple[EvaluationResult, ...] = ()
    result: ArmResult | None = None


@attrs.frozen(kw_only=True)
class Line:
    """The subject of one line or mark of a plot: an arm, or a stage of it, with its repeats."""

    label: str
    runs: tuple[Run, ...]


@attrs.frozen(kw_only=True)
class Material:
    """All that plots of an experiment are made of. `conclusion` is what conclusion.json holds, empty before there is one; `verdict` is
    that of it with its subject and the marks of the experiment.

    `last` has the runs that repeats end with, which is news where an arm has stages; empty where that isn't known.
    """

    name: str
    dry: bool
    metric: str | None
    conclusion: Mapping[str, Any]
    verdict: str
    runs: tuple[Run, ...]
    last: frozenset[str] = frozenset()

    @property
    def lines(self) -> tuple[Line, ...]:
        """The arms in their order, an arm with stages as a line a stage."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            stage = f", {run.stage.lstrip('.')}" if run.stage else ""
            found.setdefault(f"{run.arm}{stage}", []).append(run)
        return tuple(Line(label=label, runs=tuple(runs)) for label, runs in found.items())

    @property
    def results(self) -> tuple[ArmResult, ...]:
        """The results of the runs that have ended."""
        return tuple(run.result for run in self.runs if run.result is not None)

    @property
    def compared(self) -> dict[str, list[ArmResult]]:
        """The results of the compared arms, all stages of them: neither equal runs nor those that try a winner again."""
        found: dict[str, list[ArmResult]] = {}
        for result in self.results:
            if result.purpose == "candidate":
                found.setdefault(result.arm, []).append(result)
        return found

    @property
    def best(self) -> tuple[str, ...]:
        """The baseline, where it is an arm, and the arms compared with it, those with the largest effects first."""
        compared = self.conclusion.get("comparisons") or ()
        scored = [one for one in compared if one.get("effect") is not None]
        arms = [str(one["arm"]) for one in sorted(scored, key=lambda one: -one["effect"])]
        own = {run.arm for run in self.runs}
        return tuple(name for name in (str(self.conclusion.get("baseline")), *arms) if name in own)

    @property
    def best_lines(self) -> tuple[str, ...]:
        """The labels of the lines of the best arms."""
        lines = self.lines
        return tuple(line.label for arm in self.best for line in lines if line.runs[0].arm == arm)

    def ends(self, results: Sequence[ArmResult]) -> list[ArmResult]:
        """Those of some results that their repeats end with: of an arm with stages the last one's."""
        return [result for result in results if not self.last or result.run_id in self.last]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The benchmark entries scored, in that order."""
        scored = (e.benchmark for run in self.runs for e in run.evaluations)
        return tuple(dict.fromkeys(name for name in scored if not is_proof(name)))

    @property
    def success(self) -> tuple[str, str] | None:
        """Benchmark entry and metric of the success metric; None where there is none, or it was never scored.

        A dot may be part of a name: of two entries that fit, the longer is meant.
        """
        if self.metric is None:
            return None
        found = [name for name in self.benchmarks if self.metric.startswith(f"{name}.")]
        if not found:
            return None
        benchmark = max(found, key=len)
        return benchmark, self.metric.removeprefix(f"{benchmark}.")


def material_of(directory: Path) -> Material:
    """Read the record in a folder.

    Raises:
        StoreError: there is none, or a file of it can't be read.
    """
    experiment = Experiment(directory)
    facts, concluded = experiment.facts, experiment.conclusion
    conclusion = {} if concluded is None else result_tree(concluded)
    return Material(
        name=str(facts.get("name") or directory.name),
        dry=bool(facts.get("dry")),
        metric=conclusion.get("metric") or facts.get("success_metric"),
        conclusion=conclusion,
        verdict=experiment.verdict,
        runs=tuple(_run(run) for run in experiment.runs()),
        last=frozenset(
            {(arm["arm"], arm["repeat"]): str(arm["run_id"]) for arm in facts.get("arms") or ()}.values()
        ),
    )


def _run(run: RecordedRun) -> Run:
    facts, result = run.facts, run.result
    arm, repeat = str(facts.get("arm") or run.id), int(facts.get("repeat") or 0)
    plain = f"{arm}-s{repeat}"
    return Run(
        arm=arm,
        repeat=repeat,
        stage=run.id.removeprefix(plain) if run.id.startswith(plain) else "",
        metrics=_metrics(run.metrics()),
        evaluations=tuple(run.evaluations()) if result is None else result.evaluations,
        result=result,
    )


def _metrics(lines: Iterator[tuple[int, Mapping[str, float | None]]]) -> dict[str, Points]:
    found: dict[str, list[tuple[int, float | None]]] = {}
    for step, values in lines:
        for name, value in values.items():
            found.setdefault(name, []).append((int(step), None if value is None else float(value)))
    return {name: tuple(_in_order(points)) for name, points in found.items()}


def _in_order(points: Sequence[tuple[int, float | None]]) -> list[tuple[int, float | None]]:
    return sorted(points, key=lambda point: point[0])
