"""The rules of research: which proposals are refused before anything is spent, and files that no one may touch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import EvsysError
from evsys.types import Proposal, Round
from evsys_autoresearch.goal import Goal
from evsys_autoresearch.levers import apply_changes, changes_of, hashes_of
from evsys_record.hashing import digest, file_digest
from evsys_runtime.config.plan import Plan
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.insight.failure_regions import FailureRegions
from evsys_runtime.experiment.state.resolved_tree import resolved_runs

__all__ = ["BrokenRuleError", "Guard", "Rules", "arm_key"]

LONGEST_FILE = 1 << 20
"""Characters of a file that a proposal may write."""


class BrokenRuleError(Exception):
    """A proposal that isn't run; `rule` is the broken one."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def arm_key(changes: Mapping[str, Any], files: Mapping[str, str], tasks: int | None = None) -> str:
    """One text for equal arms: their changes and the hashes of their files."""
    return digest({"changes": dict(changes), "files": dict(files), "tasks": tasks})


@attrs.frozen(kw_only=True)
class Checked:
    """A proposal that breaks no rule: the arm as a run, its `changes` to the start, its files, and how often it was measured."""

    run: Mapping[str, Any]
    changes: Mapping[str, Any]
    files: Mapping[str, str]
    repetition: int = 0


@attrs.frozen(kw_only=True, eq=False)
class Rules:
    """Refuses proposals."""

    goal: Goal
    guard: Guard
    experiments: Path

    def check(
        self, proposal: Proposal, rounds: Sequence[Round], texts: Mapping[int, Mapping[str, str]]
    ) -> Checked:
        """The proposal as an arm.

        Args:
            proposal: of a researcher.
            rounds: so far.
            texts: the files of earlier rounds, by their numbers.

        Raises:
            BrokenRuleError: it breaks a rule.
        """
        _check_registration(proposal)
        if proposal.tasks is not None and proposal.tasks < 1:
            raise BrokenRuleError("proposal", f"tasks has to be at least 1, got {proposal.tasks}")
        if proposal.repeats is not None:
            return self._repetition(proposal.repeats, rounds, texts)
        config = dict(proposal.config) or dict(self.goal.tree)
        changes = changes_of(self.goal.tree, config)
        self._check_levers(changes, proposal.files)
        checked = Checked(run=config["run"], changes=changes, files=dict(proposal.files))
        self._check_new(checked, proposal, rounds)
        self._check_plan(checked)
        return checked

    def _repetition(
        self, number: int, rounds: Sequence[Round], texts: Mapping[int, Mapping[str, str]]
    ) -> Checked:
        first = next((each for each in rounds if each.number == number and each.status == "scored"), None)
        if first is None:
            raise BrokenRuleError("proposal", f"round {number} has no score, so it can't be repeated")
        same = arm_key(first.changes, first.files)
        measured = sum(arm_key(each.changes, each.files) == same for each in rounds if each.status != "lost")
        return Checked(
            run=apply_changes(self.goal.tree, first.changes)["run"],
            changes=first.changes,
            files=texts.get(number, {}),
            repetition=measured,
        )

    def _check_levers(self, changes: Mapping[str, Any], files: Mapping[str, str]) -> None:
        for path in changes:
            if not self.goal.levers.covers_path(path):
                raise BrokenRuleError("levers", f"it changes {path}, which is not under a lever")
        for name, text in files.items():
            if not self.goal.levers.covers_file(name):
                raise BrokenRuleError("levers", f"it writes {name}, which is not under a lever")
            if self.guard.protects(name):
                raise BrokenRuleError("levers", f"it writes {name}, which scores the experiments")
            if len(text) > LONGEST_FILE:
                raise BrokenRuleError(
                    "proposal", f"{name} is not a text of at most {LONGEST_FILE} characters"
                )

    def _check_new(self, checked: Checked, proposal: Proposal, rounds: Sequence[Round]) -> None:
        """No arm twice; the same arm on more tasks is another measurement."""
        files = hashes_of(checked.files)
        if not checked.changes and not checked.files:
            raise BrokenRuleError("repeated", "it is the start itself")
        key = arm_key(checked.changes, files)
        for each in rounds:
            if each.status == "lost" or arm_key(each.changes, each.files) != key:
                continue
            if each.status == "failed" or proposal.tasks is not None or not each.cheap:
                raise BrokenRuleError("repeated", f"round {each.number} had the same arm")

    def _check_plan(self, checked: Checked) -> None:
        """A valid experiment outside of the regions where everything failed."""
        if checked.files:
            return  # its code is read in the sandbox only, where a fault fails the round
        tree = {**self.goal.tree, "run": {**checked.run, "name": "candidate"}}
        try:
            plan = load_experiment(tree, registry=self.goal.registry, project_root=self.goal.project_root)
        except EvsysError as exc:
            problems = getattr(exc, "problems", ())
            text = "; ".join(f"{each.path}: {each.message}" for each in problems) or exc.message
            raise BrokenRuleError("invalid", text) from exc
        for region in self._bad_regions(plan):
            raise BrokenRuleError("known bad", f"every experiment on record failed where {region}")

    def _bad_regions(self, plan: Plan) -> Iterable[str]:
        known = FailureRegions.from_earlier(self.experiments, "", lambda _: None)
        for run in resolved_runs(plan).values() if known.classes else ():
            yield from known.regions_of_run(run)


def _check_registration(proposal: Proposal) -> None:
    """A hypothesis and an expected effect, before anything is spent."""
    if not proposal.hypothesis.strip():
        raise BrokenRuleError("pre-registration", "it has no hypothesis")
    effect = proposal.expected_effect
    if not math.isfinite(effect):
        raise BrokenRuleError("pre-registration", f"the expected effect is not a number: {effect!r}")


@attrs.frozen(kw_only=True)
class Guard:
    """The files that decide scores, with their hashes when the research began: tasks, verifiers, the sealed test, the start."""

    hashes: Mapping[str, str]
    inside: frozenset[str]

    @classmethod
    def of(cls, goal: Goal, *others: Path) -> Guard:
        """The guarded files of a goal, and others that exist."""
        root = goal.project_root.resolve()
        guarded = sorted({path.resolve() for path in _deciding_files(goal, others)})
        inside = {path.relative_to(root).as_posix() for path in guarded if path.is_relative_to(root)}
        return cls(hashes={str(path): file_digest(path) for path in guarded}, inside=frozenset(inside))

    def protects(self, name: str) -> bool:
        """Whether a file of the project, named from its root, decides scores."""
        return name in self.inside

    def touched(self) -> list[str]:
        """The files that differ from when the research began."""
        return [
            path
            for path, known in self.hashes.items()
            if not Path(path).is_file() or file_digest(Path(path)) != known
        ]


def _deciding_files(goal: Goal, others: Sequence[Path]) -> Iterator[Path]:
    root = goal.project_root
    yield from (path for path in others if path.is_file())
    yield root / goal.config.start
    for entry in (*goal.start.experiment.metadata.benchmarks, *((goal.sealed,) if goal.sealed else ())):
        if entry.path is not None:
            path = root / entry.path
            yield from (each for each in path.rglob("*") if each.is_file()) if path.is_dir() else (path,)
    verifiers = {
        task.verifier.name for known in goal.start.tasks.values() for task in known.tasks if task.verifier
    }
    metrics = {
        spec.kind for entry in goal.start.experiment.metadata.benchmarks for spec in entry.metric_specs
    }
    for kind, names in (("verifier", verifiers), ("metric", metrics)):
        for name in sorted(names):
            source = inspect.getsourcefile(inspect.unwrap(goal.registry.get(kind, name)))
            if source is not None and Path(source).resolve().is_relative_to(root.resolve()):
                yield Path(source)
