"""Experiments of a research run: started or resumed by their name, in this process or, with a researcher's code, in a sandbox."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, EvsysError, RunError, StoreError
from evsys.types import ArmResult, EvaluationResult, ExperimentResult, MetricValue, Usage
from evsys_autoresearch.goal import Goal
from evsys_autoresearch.sandbox import Sandbox, run_program
from evsys_record import BASE_MODEL, final_scoring, metric_of, slug, write_atomic
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.run_checkpoint import checkpoint_named
from evsys_runtime import in_background
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.evaluated_models import find_saved_model
from evsys_runtime.experiment.evaluation import ascore
from evsys_runtime.experiment.resume.resume import result_on_record

__all__ = ["CANDIDATE", "START", "Laboratory", "Measured"]

START, CANDIDATE = "start", "candidate"
"""The names of the arms of a round."""

FRESH = 1000
"""How far the seeds of a repetition are from those of the rounds."""


@attrs.frozen(kw_only=True)
class Measured:
    """The outcome of an experiment for an arm. `effect` is the difference to the start, positive for better."""

    experiment: str
    status: str
    score: float | None = None
    low: float | None = None
    high: float | None = None
    tasks: int = 0
    effect: float | None = None
    seconds: float = 0.0
    money: float = 0.0
    reason: str | None = None


class Laboratory:
    """Makes the experiment files of rounds and runs them.

    Args:
        goal: the goal.
        directory: the record of the research run.
        sandbox: where code of a researcher runs.
    """

    def __init__(self, goal: Goal, directory: Path, sandbox: Sandbox) -> None:
        self.goal, self.directory, self.sandbox = goal, directory, sandbox
        self.experiments = goal.project_root / goal.start.experiment.output_dir

    def config(
        self,
        name: str,
        run: Mapping[str, Any] | None,
        *,
        hypothesis: str,
        parent: str | None = None,
        repetition: int = 0,
        repeats: int = 1,
        tasks: int | None = None,
        left: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """The experiment file of an arm next to the start; without a `run` of the start alone.

        Args:
            name: of the experiment.
            run: the arm's config.
            hypothesis: why.
            parent: the experiment that it follows from.
            repetition: 0 for the seeds of the rounds, another number for fresh ones.
            repeats: training runs of each arm.
            tasks: how many validation tasks are scored; all by default.
            left: limits of the budget.
        """
        tree = {key: value for key, value in self.goal.tree.items() if key not in ("run", "name", "budget")}
        metadata = dict(tree.get("metadata") or {})
        metadata |= {"hypothesis": hypothesis, "success_metric": str(self.goal.success)}
        metadata |= {"parent_experiment_id": parent} if parent else {}
        if self.goal.config.objective.minimum_effect:
            metadata["minimum_effect"] = self.goal.config.objective.minimum_effect
        arms = [{**self.goal.tree["run"], "name": START}]
        if run is not None:
            arms.append({**run, "name": CANDIDATE})
            metadata["baseline"] = START
        else:
            metadata["baseline"] = BASE_MODEL
        if tasks is not None:
            metadata["benchmark"] = [
                {**entry, "limit": tasks} if label == self.goal.success.benchmark else entry
                for entry, label in self._entries(metadata["benchmark"])
            ]
        return {
            **tree,
            "name": name,
            "metadata": metadata,
            "runs": arms,
            "base_seed": int(tree.get("base_seed") or 0) + FRESH * repetition,
            "n_repeats": repeats,
            "reuse_arms": True,
            **({"budget": budget} if (budget := _budget(left or {})) else {}),
        }

    def _entries(self, listed: Any) -> list[tuple[dict[str, Any], str]]:
        entries = listed if isinstance(listed, Sequence) else [listed]
        labels = [entry.label for entry in self.goal.start.experiment.metadata.benchmarks]
        return [(dict(entry), label) for entry, label in zip(entries, labels, strict=True)]

    async def run(self, config: Mapping[str, Any], files: Mapping[str, str]) -> ExperimentResult:
        """Run an experiment, or finish the one on record that has its name.

        Raises:
            EvsysError: it couldn't be run.
        """
        directory = self.on_record(str(config["name"]))
        if files:
            return await self._run_apart(config, files, directory)
        if directory is not None:
            try:
                return await Experiment.resume(directory, quiet=True).arun()
            except (ConfigError, StoreError):  # killed before its record was whole: it had spent nothing
                shutil.rmtree(directory)
        experiment = Experiment(
            config,
            project_root=self.goal.project_root,
            registry=self.goal.registry,
            quiet=True,
            skip_grader_check=True,
        )
        return await experiment.arun()

    def on_record(self, name: str) -> Path | None:
        """The newest experiment with that name."""
        found = sorted(self.experiments.glob(f"*-{slug(name)}/experiment.json"))
        return found[-1].parent if found else None

    async def _run_apart(
        self, config: Mapping[str, Any], files: Mapping[str, str], done: Path | None
    ) -> ExperimentResult:
        """Run with changed project files, in a copy of the project that the sandbox shows in its place.

        The copy's finished record is moved to the others, so an experiment there is complete.
        """
        if done is not None:
            return await in_background(result_on_record, ExperimentRecord.open(done))
        copy = self.directory / "projects" / slug(str(config["name"]))
        await in_background(self._copy_project, copy, files)
        write_atomic(copy / "research-experiment.json", json.dumps(config))
        ended = await run_program(
            [sys.executable, "-m", "evsys_autoresearch.child", "experiment", "research-experiment.json"],
            sandbox=self.sandbox,
            directory=copy,
            seconds=None,
        )
        made = sorted((copy / self.goal.start.experiment.output_dir).glob("*/experiment.json"))
        if not made:
            raise RunError(f"the experiment ended with code {ended.code}: {ended.tail}")
        result = await in_background(result_on_record, ExperimentRecord.open(made[-1].parent))
        place = self.experiments / made[-1].parent.name
        await in_background(shutil.move, made[-1].parent, place)
        await in_background(shutil.rmtree, copy)
        return attrs.evolve(result, directory=str(place))

    def _copy_project(self, copy: Path, files: Mapping[str, str]) -> None:
        def left_out(folder: str, names: list[str]) -> set[str]:
            top = Path(folder) == self.goal.project_root
            return {
                name
                for name in names
                if (Path(folder) / name).is_symlink()
                or name in {".git", ".venv", "__pycache__"}
                or (top and name == ".evsys")
            }

        if not copy.exists():
            shutil.copytree(self.goal.project_root, copy, ignore=left_out)
            (copy / ".evsys").mkdir()
        for name, text in files.items():
            write_atomic(copy / name, text)

    def measured(self, result: ExperimentResult, arm: str) -> Measured:
        """The outcome of an arm."""
        arms = [each for each in result.arms if each.arm == arm]
        scored = [self.scoring(each) for each in arms]
        values = [
            value
            for each in scored
            if (value := metric_of(each, self.goal.success.metric)) is not None and value.value is not None
        ]
        comparison = next((each for each in result.conclusion.comparisons if each.arm == arm), None)
        usage = sum((each.usage for each in result.arms if each.reused is None), Usage())
        value = values[0] if values else MetricValue(value=None)
        return Measured(
            experiment=result.experiment_id,
            status=result.status,
            score=value.value,
            low=value.low,
            high=value.high,
            tasks=value.n,
            effect=None if comparison is None else comparison.effect,
            seconds=result.seconds,
            money=usage.cost_usd or 0.0,
            reason=None if values else _reason_of(arms, result),
        )

    def scoring(self, arm: ArmResult) -> EvaluationResult | None:
        """The scoring of an arm that counts."""
        return final_scoring(arm, self.goal.success.benchmark)

    async def score_sealed(self, experiment: Path, run_id: str) -> EvaluationResult:
        """Score the checkpoint of a run on the sealed test, with the project's own code in this process.

        Raises:
            EvsysError: it can't be scored.
        """
        assert self.goal.sealed is not None
        folder = checkpoint_named(str(experiment / "runs" / run_id), self.experiments)
        if folder is None:
            raise RunError(f"{experiment.name}/{run_id} has no checkpoint")
        result = await ascore(
            find_saved_model(folder),
            [self.goal.sealed],
            project_root=self.goal.project_root,
            registry=self.goal.registry,
            quiet=True,
            skip_grader_check=True,
        )
        scoring = result.evaluations[0]
        if not scoring.fully_scored:
            why = scoring.failure.message if scoring.failure else scoring.status
            raise RunError(f"{experiment.name}/{run_id} can't be scored on the sealed test: {why}")
        return scoring


def _budget(left: Mapping[str, float]) -> dict[str, float]:
    names = {"seconds": "wall_seconds", "money": "usd"}
    return {names[name]: value for name, value in left.items() if name in names}


def _reason_of(arms: Sequence[ArmResult], result: ExperimentResult) -> str:
    """Why an arm has no score."""
    for arm in arms:
        failure = arm.failure or (arm.run.failure if arm.run else None)
        if failure is not None:
            return failure.message
    return f"it has no score: the experiment is {result.status}"


def error_text(error: EvsysError) -> str:
    """An error as one line of the journal."""
    if isinstance(error, ConfigError):
        return "; ".join(f"{each.path}: {each.message}" for each in error.problems) or error.message
    return error.message
