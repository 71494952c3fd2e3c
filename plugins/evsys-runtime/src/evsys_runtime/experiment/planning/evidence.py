"""What the record holds that a plan can be judged by: earlier configs, scores task by task, what they took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, StoreError
from evsys.types import ArmResult, EvaluationResult
from evsys_runtime.record.files import read_json
from evsys_runtime.record.history import Question, ask, runs_of
from evsys_runtime.record.index import Index
from evsys_runtime.record.leaves import arm_leaves, benchmark_leaves
from evsys_runtime.record.past import PastExperiment, PastRun
from evsys_runtime.record.result_schemas import read_as

__all__ = ["Evidence", "PastArm", "PastScoring", "arm_label"]


def arm_label(arm: Mapping[str, Any]) -> str:
    """What an arm of resolved.json is told apart by: its name, with its stage where it has one."""
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
        """What of its config can change its result."""
        return arm_leaves(self.run)

    @property
    def scored_on(self) -> dict[str, Any]:
        """The same of what it was scored on."""
        return benchmark_leaves(self.benchmarks)

    def trained_as(self, run: Mapping[str, Any]) -> bool:
        """Whether another arm trains the same model by the same algorithm on the same backend, with whatever params."""
        return all(
            (self.run.get(part) or {}).get(key) == (run.get(part) or {}).get(key)
            for part, key in (("algorithm", "kind"), ("model", "name"), ("backend", "kind"))
        )


@attrs.frozen(kw_only=True)
class PastScoring:
    """A scoring of the same tasks that was completed."""

    arm: PastArm
    run: PastRun
    evaluation: EvaluationResult


class Evidence:
    """The experiments of an index, dry runs apart, the newest first. Records that can't be read tell nothing."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._arms: list[PastArm] | None = None
        self.result = cache(self._result)

    def arms(self) -> list[PastArm]:
        """Every arm on record."""
        if self._arms is None:
            experiments = ask(self._index, Question()).experiments
            self._arms = [arm for past in experiments for arm in self.arms_of(past)]
        return self._arms

    def arms_of(self, past: PastExperiment) -> Iterator[PastArm]:
        """The arms of one experiment, dry or not; none where its resolved.json is missing or of another form."""
        folder = self._index.experiments / past.experiment_id
        try:
            tree = read_json(folder / "resolved.json")
        except StoreError:
            return
        found: dict[str, list[Mapping[str, Any]]] = {}
        for arm in tree.get("arms", ()):
            if isinstance(arm, Mapping) and "arm" in arm and isinstance(arm.get("run"), Mapping):
                found.setdefault(arm_label(arm), []).append(arm)
        runs = runs_of(self._index, past.experiment_id) if found else ()
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
        for arm in self.arms():
            if all(entry.get("hash") != benchmark_hash for entry in arm.benchmarks):
                continue
            for run in arm.runs:
                result = None if run.folder is None else self.result(arm.directory, run.folder)
                for evaluation in () if result is None else result.evaluations:
                    same = evaluation.benchmark_hash == benchmark_hash and evaluation.model is None
                    if same and evaluation.status == "completed":
                        yield PastScoring(arm=arm, run=run, evaluation=evaluation)
