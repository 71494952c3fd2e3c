"""Candidate and incumbent scored on the benchmarks of a suite, with the same seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys import Registry
from evsys.errors import ConfigError, RunError, StoreError
from evsys.types import ArmResult, EvaluationResult
from evsys_deployers.gate.decision import EntryScores, SideScores
from evsys_deployers.gate.suite import Suite
from evsys_record.checkpoints import MANIFEST
from evsys_record.files import read_json, storing
from evsys_record.jsonl import read_jsonl
from evsys_runtime.evaluation.benchmarks import BoundBenchmark, load_benchmark
from evsys_runtime.experiment.evaluated_models import BaseModel, SavedModel, find_saved_model
from evsys_runtime.experiment.evaluation import ascore

__all__ = [
    "BASE",
    "TRAINING_FILES",
    "ModelIdentity",
    "Scores",
    "checkpoint_digest",
    "identity_of",
    "incumbent_of",
    "score_both",
]

TRAINING_FILES = ("optimizer",)
"""Beginnings of the names of files that only training needs."""

BASE = "base"
"""As incumbent: the base model of the candidate."""


@attrs.frozen(kw_only=True)
class ModelIdentity:
    """A model, so that it can be recognised.

    Attributes:
        label: for people.
        checkpoint: its folder; None for a base model.
        digest: SHA-256 of the files of the checkpoint, or of the base model's name and backend.
        model: name, renderer and LoRA settings, the chat template among them.
        backend: its kind and params.
    """

    label: str
    checkpoint: str | None
    digest: str
    model: Mapping[str, Any]
    backend: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Scores:
    """Both sides on all entries.

    Attributes:
        candidate, incumbent: who they are.
        entries: their scores, the target first.
        records: the folders of the two evaluations.
        selected_by: experiments in which the candidate was selected by the tasks of the target.
        warnings: what the evaluations warned of.
    """

    candidate: ModelIdentity
    incumbent: ModelIdentity
    entries: tuple[EntryScores, ...]
    records: tuple[str, str]
    selected_by: tuple[str, ...]
    warnings: tuple[str, ...]


def identity_of(model: SavedModel | BaseModel) -> ModelIdentity:
    """Who a model is.

    Raises:
        StoreError: the checkpoint can't be read.
    """
    facts = {"model": attrs.asdict(model.model), "backend": attrs.asdict(model.backend)}
    if isinstance(model, BaseModel):
        digest = hashlib.sha256(repr(facts).encode()).hexdigest()
        return ModelIdentity(label=model.label, checkpoint=None, digest=f"sha256:{digest}", **facts)
    return ModelIdentity(
        label=model.label, checkpoint=str(model.folder), digest=checkpoint_digest(model.folder), **facts
    )


def checkpoint_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of a checkpoint's files, optimiser state excepted.

    Raises:
        StoreError: there is no such folder, or a file isn't what its manifest says.
    """
    listed = _listed_files(folder)
    whole = hashlib.sha256()
    for name in sorted(listed):
        if name.startswith(TRAINING_FILES):
            continue
        with storing(folder / name, "read"), (folder / name).open("rb") as stream:
            content = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
        if listed[name] not in (None, content):
            raise StoreError(f"{folder / name} is not the file that the run saved")
        whole.update(f"{name}\0{content}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _listed_files(folder: Path) -> dict[str, str | None]:
    """The files of a checkpoint, with their hashes if it has a manifest."""
    if (folder / MANIFEST).is_file():
        return {
            name: facts["sha256"] for name, facts in (read_json(folder / MANIFEST).get("files") or {}).items()
        }
    with storing(folder, "read"):
        return {each.name: None for each in folder.iterdir() if each.is_file()}


def incumbent_of(folder: Path | None, candidate: SavedModel) -> SavedModel | BaseModel:
    """The incumbent: a checkpoint, or the base model of the candidate."""
    if folder is not None:
        return find_saved_model(folder)
    model = attrs.evolve(candidate.model, init_from_checkpoint=None, load_checkpoint_path=None)
    return BaseModel(model=model, backend=candidate.backend)


async def score_both(
    suite: Suite, candidate: SavedModel, incumbent: SavedModel | BaseModel, *, registry: Registry, quiet: bool
) -> Scores:
    """Score both on all benchmarks of the suite.

    Raises:
        ConfigError, DataError, PluginError: something can't be used; nothing was scored.
        RunError: a scoring failed as a whole.
    """
    identities = identity_of(candidate), identity_of(incumbent)
    root, config = suite.project_root, suite.config
    bound = [load_benchmark(entry, registry=registry, project_root=root) for entry in config.entries]
    for each in bound:
        if each.metrics[0].task_value([1.0] * each.num_samples) is None:
            raise ConfigError(
                f"{each.metrics[0].name} of {each.name} is not a mean over tasks",
                hint="name a metric of single tasks first, such as mean_reward",
            )
    results = []
    for model in (candidate, incumbent):
        result = await ascore(
            model,
            config.entries,
            project_root=root,
            registry=registry,
            seed=config.seed,
            quiet=quiet,
            no_cache=config.bounds.seconds is not None,
        )
        failed = next((e for e in result.evaluations if e.status not in ("completed", "missing")), None)
        if failed is not None or len(result.evaluations) < len(bound):
            named = (
                ""
                if failed is None
                else f" on {failed.benchmark}: {failed.failure and failed.failure.message}"
            )
            raise RunError(f"{model.label} could not be scored{named}", hint=f"see {result.run_dir}")
        results.append(result)
    entries = [
        _entry(each, entry.pass_threshold, *results)
        for each, entry in zip(bound, config.entries, strict=True)
    ]
    return Scores(
        candidate=identities[0],
        incumbent=identities[1],
        entries=tuple(entries),
        records=(str(results[0].run_dir), str(results[1].run_dir)),
        selected_by=_find_selection(candidate, bound[0]),
        warnings=tuple(dict.fromkeys((*results[0].warnings, *results[1].warnings))),
    )


def _entry(
    bound: BoundBenchmark, threshold: float, candidate: ArmResult, incumbent: ArmResult
) -> EntryScores:
    """Both sides on one benchmark."""
    scorings = [
        next(each for each in result.evaluations if each.benchmark == bound.name)
        for result in (candidate, incumbent)
    ]
    metric = bound.metrics[0]
    seen = [reward for scoring in scorings for rewards in scoring.task_rewards.values() for reward in rewards]
    possible = (min(0.0, *seen, 0.0), max(1.0, *seen, 1.0))
    rollouts = [_rollouts(result, bound) for result in (candidate, incumbent)]
    sides = [_side(bound, scoring, own, possible) for scoring, own in zip(scorings, rollouts, strict=True)]
    answers = [{task: [one["output"] for one in each] for task, each in own.items()} for own in rollouts]
    passed = [{task: value[0] >= threshold for task, value in side.values.items()} for side in sides]
    binary = bound.num_samples == 1 and all(value in (0.0, 1.0) for value in seen)
    return EntryScores(
        benchmark=bound.name,
        metric=metric.name,
        direction=1.0 if metric.direction == "max" else -1.0,
        candidate=sides[0],
        incumbent=sides[1],
        clusters=dict(scorings[0].clusters),
        slices={
            key: {t.task_id: str(t.metadata[key]) for t in bound.tasks if key in t.metadata}
            for key in sorted({key for task in bound.tasks for key in task.metadata})
        },
        largest=possible[1] - possible[0] if possible == (0.0, 1.0) else None,
        binary=binary,
        changed=tuple(task for task in sides[0].values if answers[0].get(task) != answers[1].get(task)),
        flips={
            "wrong to right": tuple(t for t in passed[0] if passed[0][t] and not passed[1][t]),
            "right to wrong": tuple(t for t in passed[0] if not passed[0][t] and passed[1][t]),
        },
        hashes={"tasks": bound.benchmark_hash, "verifiers": scorings[0].verifier_hash},
    )


def _side(
    bound: BoundBenchmark,
    scoring: EvaluationResult,
    rollouts: Mapping[str, Sequence[Mapping[str, Any]]],
    possible: tuple[float, float],
) -> SideScores:
    """One side, whose missing samples could have had any reward that is possible."""
    metric, count = bound.metrics[0], bound.num_samples
    values = {}
    for task in bound.tasks:
        rewards = list(scoring.task_rewards.get(task.task_id, ()))
        lacking = max(0, count - len(rewards))
        ends = [metric.task_value([*rewards, *[reward] * lacking]) for reward in possible]
        low, high = sorted(
            end if end is not None else reward for end, reward in zip(ends, possible, strict=True)
        )
        values[task.task_id] = (low, high)
    usages = [one["usage"] for each in rollouts.values() for one in each if one.get("usage")]
    shares = max(1, len(usages))
    return SideScores(
        values=values,
        missing=len(bound.tasks) * count - sum(map(len, scoring.task_rewards.values())),
        tokens=sum(usage["completion_tokens"] for usage in usages) / shares,
        seconds=sum(usage["seconds"] for usage in usages) / shares,
    )


def _rollouts(result: ArmResult, bound: BoundBenchmark) -> dict[str, list[Mapping[str, Any]]]:
    """The stored rollouts of a scoring by task, in the order of their samples."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    assert result.run_dir is not None
    for phase in ("validation", "test"):  # a final test that is recognised by its tasks goes to `test`
        for line in read_jsonl(Path(result.run_dir) / phase / "rollouts.jsonl", missing_ok=True):
            if (line.get("facts") or {}).get("benchmark") == bound.name:
                found.setdefault(line["rollout"]["task_id"], []).append(line["rollout"])
    return {task: sorted(each, key=lambda one: one["sample_index"]) for task, each in found.items()}


def _find_selection(candidate: SavedModel, target: BoundBenchmark) -> tuple[str, ...]:
    """The experiment of the candidate, if the tasks of the target steered it."""
    experiment = candidate.folder.parent.parent.parent.parent
    try:
        known = read_json(experiment / "experiment.json").get("benchmarks") or {}
    except StoreError:
        return ()
    steered = any(
        each.get("split") != "test" and each.get("hash") == target.benchmark_hash for each in known.values()
    )
    return (experiment.name,) if steered else ()
