"""The evidence behind a conclusion, from the files of the record: the question, the runs, and the rewards of their
rollouts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import EvsysError, StoreError
from evsys_record.attempts import Attempt, is_superseded, read_live
from evsys_record.files import read_json
from evsys_record.result_files import run_folder
from evsys_runtime.audit.findings import ODD_SHAPE, describe

__all__ = ["Evidence", "Run", "Scoring", "read_evidence"]

type Tree = Mapping[str, Any]
type Rewards = Mapping[str, Mapping[int, float | None]]
"""By task and sample; None for a sample without a score."""

PHASES = ("validation", "test")


@attrs.frozen(kw_only=True)
class Scoring:
    """A scoring of a model on a benchmark entry: `tree` as the run's result has it, `rollouts` what its rollouts say.

    `of` is the run whose rollouts they are, another one where arms share the scores of their untrained weights; None without rollouts.
    """

    tree: Tree
    rollouts: Rewards = attrs.field(factory=dict)
    of: str | None = None

    @property
    def key(self) -> tuple[str, int, str | None]:
        """Entry, step and API model."""
        return self.tree["benchmark"], int(self.tree["step"]), self.tree["model"]

    @property
    def rewards(self) -> dict[str, tuple[float, ...]]:
        """The rewards of each task's scored samples: by the rollouts, or by the result if there are none."""
        if self.of is None:
            return {task: tuple(rewards) for task, rewards in self.tree["task_rewards"].items()}
        return rewards_of(self.rollouts)

    @property
    def is_invalid(self) -> bool:
        return bool(self.tree["status"] == "invalid")


def rewards_of(rollouts: Rewards) -> dict[str, tuple[float, ...]]:
    """The rewards of each task in the order of its samples, without those that have no score."""
    return {
        task: tuple(reward for _, reward in sorted(samples.items()) if reward is not None)
        for task, samples in rollouts.items()
    }


@attrs.frozen(kw_only=True)
class Run:
    """A planned run: its place in the plan, its `run.json` and `run_result.json` (empty where there is none), and its scorings.

    `made_in` is the folder with its rollouts and checkpoints: `folder`, or for a reused run that of the run it was reused from.
    """

    run_id: str
    arm: str
    repeat: int
    purpose: str = "candidate"
    stage: str | None = None
    folder: Path | None = None
    made_in: Path | None = None
    facts: Tree = attrs.field(factory=dict)
    result: Tree = attrs.field(factory=dict)
    scorings: tuple[Scoring, ...] = ()

    @property
    def completed(self) -> bool:
        """Whether it ended as planned, or as someone requested."""
        return self.result.get("status") in ("completed", "stopped")

    @property
    def reused(self) -> bool:
        """Whether it is a run of an earlier experiment."""
        return self.made_in != self.folder

    @property
    def selected_step(self) -> int | None:
        """The step of the checkpoint that counts, if one was selected."""
        selected = (self.result.get("run") or {}).get("selected_checkpoint")
        return None if selected is None else int(selected["step"])


@attrs.frozen(kw_only=True)
class Evidence:
    """The record of an experiment: `facts` are experiment.json, `resolved` resolved.json. Runs are in the order of the plan."""

    folder: Path
    facts: Tree
    resolved: Tree
    conclusion: Tree
    runs: tuple[Run, ...]

    def entry(self, benchmark: str) -> Tree:
        """The resolved benchmark entry of a name; empty if there is none."""
        entries = self.resolved.get("benchmarks") or ()
        return next((entry for entry in entries if entry["name"] == benchmark), {})


def read_evidence(folder: Path, *, follow: bool = True) -> Evidence:
    """Read what an audit needs.

    Args:
        folder: of the experiment.
        follow: read the rollouts of reused runs, in the records of the experiments that made them.

    Raises:
        StoreError: experiment.json or another file that is there can't be read, or isn't as evsys writes it.
    """
    try:
        return _read(folder, follow=follow)
    except EvsysError:
        raise
    except ODD_SHAPE as exc:
        raise StoreError(
            f"a file in {folder} isn't as evsys writes it ({describe(exc)})", path=str(folder)
        ) from exc


def _read(folder: Path, *, follow: bool) -> Evidence:
    facts = read_json(folder / "experiment.json")
    folders = {read_json(path)["run_id"]: path.parent for path in folder.glob("runs/*/run.json")}
    read = cache(lambda source: read_evidence(source, follow=False))
    rollouts: dict[str, Mapping[Hashable, Rewards]] = {}
    for run_id, place in folders.items():
        source = run_folder(place, _optional(place / "run_result.json"))
        rollouts[run_id] = _rollouts(place)
        if source != place and follow:
            with suppress(StoreError):  # `check_reuse` has it
                rollouts[run_id] = _rollouts_of(read(source.parents[1]), source)
    return Evidence(
        folder=folder,
        facts=facts,
        resolved=_optional(folder / "resolved.json"),
        conclusion=_optional(folder / "conclusion.json"),
        runs=tuple(_run(planned, folders, rollouts) for planned in facts.get("arms") or ()),
    )


def _rollouts_of(evidence: Evidence, folder: Path) -> dict[Hashable, Rewards]:
    """The rewards of the scorings of one run, those included that it shares with others."""
    scorings = (scoring for run in evidence.runs if run.folder == folder for scoring in run.scorings)
    return {scoring.key: scoring.rollouts for scoring in scorings if scoring.of is not None}


def _run(
    planned: Tree,
    folders: Mapping[str, Path],
    rollouts: Mapping[str, Mapping[Hashable, Rewards]],
) -> Run:
    run_id = planned["run_id"]
    run = Run(
        run_id=run_id,
        arm=planned["arm"],
        repeat=planned["repeat"],
        purpose=planned.get("purpose", "candidate"),
        stage=planned.get("stage"),
    )
    if run_id not in folders:
        return run
    place = folders[run_id]
    facts, result = read_json(place / "run.json"), _optional(place / "run_result.json")
    if is_superseded(result, attempts_of(facts)):
        result = {}
    scorings = tuple(_scoring(tree, run_id, rollouts) for tree in result.get("evaluations") or ())
    source = run_folder(place, result)
    return attrs.evolve(run, folder=place, made_in=source, facts=facts, result=result, scorings=scorings)


def _scoring(tree: Tree, run_id: str, rollouts: Mapping[str, Mapping[Hashable, Rewards]]) -> Scoring:
    """A scoring with its rollouts: the run's own, or for untrained weights those of another run that has the same rewards."""
    scoring = Scoring(tree=tree)
    own = rollouts[run_id].get(scoring.key)
    if own is not None:
        return attrs.evolve(scoring, rollouts=own, of=run_id)
    if scoring.key[1] == 0:
        told = scoring.rewards
        for other, scored in rollouts.items():
            shared = scored.get(scoring.key)
            if shared is not None and _drop_empty(rewards_of(shared)) == _drop_empty(told):
                return attrs.evolve(scoring, rollouts=shared, of=other)
    return scoring


def _drop_empty(rewards: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    return {task: tuple(values) for task, values in rewards.items() if values}


def _rollouts(folder: Path) -> Mapping[Hashable, Rewards]:
    """The rewards in the rollouts of a run's scorings, by entry, step and API model."""
    attempts = attempts_of(read_json(folder / "run.json"))
    found: dict[Hashable, dict[str, dict[int, float | None]]] = {}
    for phase in PHASES:
        for line in read_live(folder / phase / "rollouts.jsonl", attempts, _place):
            entry, step, model, task, sample = _place(line)
            samples = found.setdefault((entry, step, model), {}).setdefault(task, {})
            samples[sample] = line["rollout"]["score"].get("value")
    return found


def _place(line: Tree) -> tuple[str, int, str | None, str, int]:
    facts, rollout = line["facts"], line["rollout"]
    return facts["benchmark"], line["step"], facts.get("model"), rollout["task_id"], rollout["sample_index"]


def attempts_of(facts: Tree) -> list[Attempt]:
    """The attempts that run.json lists."""
    names = {field.name for field in attrs.fields(Attempt)}
    return [
        Attempt(**{key: value for key, value in attempt.items() if key in names})
        for attempt in facts.get("attempts") or ()
    ]


def _optional(path: Path) -> Tree:
    return read_json(path) if path.exists() else {}


def evaluation_lines(run: Run) -> Iterator[Tree]:
    """The scorings that the run wrote down when they ended.

    Raises:
        StoreError: the file can't be read.
    """
    if run.folder is None:
        return
    for line in read_live(run.folder / "evaluations.jsonl", attempts_of(run.facts), _evaluation_key):
        yield line["evaluation"]


def _evaluation_key(line: Tree) -> Hashable:
    scored = line["evaluation"]
    return scored["step"], scored["benchmark"], scored["model"]


def training_rows(run: Run) -> Path | None:
    """The file of the rows that a run trained on; None if the record has none."""
    if run.folder is None:
        return None
    path = run.folder / "data" / "training_data.jsonl"
    pointer = path.with_suffix(".pointer.json")
    if not path.exists() and pointer.exists():
        path = (path.parent / str(read_json(pointer)["path"])).resolve()
    return path if path.exists() else None
