"""The evidence of the record to judge a plan by: earlier configs, scores task by task, costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, StoreError
from evsys.types import ArmResult, EvaluationResult
from evsys_record import PastExperiment, PastRun, Question, ask
from evsys_record.files import read_json
from evsys_record.history import find_experiments, runs_of
from evsys_record.index import Index
from evsys_record.leaves import arm_leaves, benchmark_leaves
from evsys_record.result_trees import read_as
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord

__all__ = ["Evidence", "PastArm", "PastScoring", "arm_label"]


def arm_label(arm: Mapping[str, Any]) -> str:
    """The label of an arm of resolved.json: its name, with its stage if it has one."""
    stage = arm.get("stage")
    return str(arm["arm"]) if stage is None else f"{arm['arm']}.{stage}"


@attrs.frozen(kw_only=True)
class PastArm:
    """An arm of an experiment on record with its runs; `run` is its resolved config, `benchmarks` the resolved entries."""

    experiment: PastExperiment
    name: str
    run: Mapping[str, Any]
    benchmarks: tuple[Mapping[str, Any], ...]
    base_seeds: tuple[tuple[int, int], ...]
    runs: tuple[PastRun, ...]
    directory: Path

    @property
    def leaves(self) -> dict[str, Any]:
        """The leaves of its config that can change its result."""
        return arm_leaves(self.run)

    @property
    def scored_on(self) -> dict[str, Any]:
        """The same of what it was scored on."""
        return benchmark_leaves(self.benchmarks)

    def trained_as(self, run: Mapping[str, Any]) -> bool:
        """Whether another arm trains the same model by the same algorithm on the same backend, with any params."""
        return _trains(self.run) == _trains(run)


def _trains(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """The algorithm, the model and the backend of an arm."""
    parts = (("algorithm", "kind"), ("model", "name"), ("backend", "kind"))
    return tuple((run.get(part) or {}).get(key) for part, key in parts)


@attrs.frozen(kw_only=True)
class PastScoring:
    """A completed evaluation of the same tasks."""

    arm: PastArm
    run: PastRun
    evaluation: EvaluationResult


class Evidence:
    """The experiments of an index, dry runs apart, the newest first. Unreadable records are ignored.

    The index shows which of them matter, so that only their files are read.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.result = cache(self._result)
        self._known = cache(lambda: {past.experiment_id: past for past in ask(index, Question()).experiments})
        self._read = cache(lambda folder: tuple(self.arms_of(self._known()[folder])))

    @property
    def is_empty(self) -> bool:
        """True if no experiment is on record."""
        return not self._known()

    def arms_near(self, configs: Iterable[Mapping[str, str]], most: int) -> Iterator[PastArm]:
        """Arms that lack at most so many values of one of some configs, given as JSON texts by path.

        The configs are read only if there are arms on record.
        """
        on_record = ArmsOnRecord.from_index(self.index)
        if not on_record.arms:
            return
        numbers = {leaf: number for number, leaf in on_record.leaves.items()}
        wanted = [
            (len(config), {numbers[leaf] for leaf in config.items() if leaf in numbers}) for config in configs
        ]
        near = {
            own: any(size - len(known & own) <= most for size, known in wanted)
            for own in {own for _, _, own in on_record.arms}
        }
        folders = dict(find_experiments(self.index, Question()))
        arms: dict[str, set[str]] = {}
        for experiment, arm, own in on_record.arms:
            if near[own] and experiment in folders:
                arms.setdefault(folders[experiment], set()).add(arm)
        for folder in self._known():
            if folder in arms:
                yield from (arm for arm in self._read(folder) if arm.name in arms[folder])

    def arms_scored_on(self, benchmark_hash: str | None) -> Iterator[PastArm]:
        """Arms of experiments that scored these very tasks."""
        query = (
            "SELECT e.folder FROM label l JOIN experiment e ON e.id = l.experiment "
            "WHERE l.kind = 'tasks' AND l.value = ?"
        )
        scored = {folder for (folder,) in self.index.rows(query, (benchmark_hash,))}
        for folder in self._known():
            if folder in scored:
                yield from self._read(folder)

    def arms_trained_as(self, run: Mapping[str, Any]) -> Iterator[PastArm]:
        """Arms with the same algorithm, model and backend."""
        for folder, past in self._known().items():
            kinds = (past.algorithms, past.models, past.backends)
            if all(value in found for value, found in zip(_trains(run), kinds, strict=True)):
                yield from (arm for arm in self._read(folder) if arm.trained_as(run))

    def arms_of(self, past: PastExperiment) -> Iterator[PastArm]:
        """The arms of one experiment, dry or not; none where its resolved.json is missing or of another form."""
        folder = self.index.experiments / past.experiment_id
        try:
            tree = read_json(folder / "resolved.json")
        except StoreError:
            return
        found: dict[str, list[Mapping[str, Any]]] = {}
        for arm in tree.get("arms", ()):
            if isinstance(arm, Mapping) and "arm" in arm and isinstance(arm.get("run"), Mapping):
                found.setdefault(arm_label(arm), []).append(arm)
        runs = runs_of(self.index, past.experiment_id) if found else ()
        for name, repeats in found.items():
            yield PastArm(
                experiment=past,
                name=name,
                run=repeats[0]["run"],
                benchmarks=tuple(tree.get("benchmarks", ())),
                base_seeds=tuple((each.get("base_seed", 0), each.get("repeat", 0)) for each in repeats),
                runs=tuple(run for run in runs if run.run_id in {each.get("run_id") for each in repeats}),
                directory=folder,
            )

    def _result(self, directory: Path, folder: str) -> ArmResult | None:
        """The result of a run; None where there is none that this version reads."""
        path = directory / "runs" / folder / "run_result.json"
        try:
            return read_as(ArmResult, read_json(path))
        except (StoreError, ConfigError):
            return None

    def scorings(self, benchmark_hash: str | None) -> Iterator[PastScoring]:
        """Scorings of these very tasks by models on the way of training or before, the newest first."""
        for arm in self.arms_scored_on(benchmark_hash):
            for run in (run for run in arm.runs if run.reused_from is None):
                result = None if run.folder is None else self.result(arm.directory, run.folder)
                for evaluation in () if result is None else result.evaluations:
                    same = evaluation.benchmark_hash == benchmark_hash and evaluation.model is None
                    if same and evaluation.status == "completed":
                        yield PastScoring(arm=arm, run=run, evaluation=evaluation)
