"""The question that a record asks, regardless of its arms, entries and files are called, and the looks taken at it.

Everything is read from the record's trees, so that a running experiment and one of an earlier version are treated alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from evsys.types.evidence import Look
from evsys_record.hashing import digest
from evsys_record.leaves import short_leaves
from evsys_record.task_contents import TaskContents, is_alike

__all__ = [
    "BASE_MODEL",
    "AskedQuestion",
    "ScoredEntry",
    "asked_question",
    "complete_looks",
    "looks_taken",
    "scored_entries",
]

BASE_MODEL = "base_model"
"""The baseline that is not an arm: the model as it was before training."""
_NO_LEVER = "nothing"
_PLACE = re.compile(r"\[\d+\]")
_NOT_LEVERS = frozenset({"seed"})

type Tree = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class AskedQuestion:
    """A question, identified by things that can't be renamed.

    `metric` is the kind of the success metric; `baseline` describes the baseline's recipe. The margin, the values
    of numbers and the seeds don't distinguish questions: the next attempt at a question changes these first.
    `simulated` questions are apart from real ones. `entry_hash` is the hash of the entry's rows, the only mark of
    the tasks in older records; newer ones have `contents`.
    """

    metric: str
    direction: str
    claim: str
    baseline: str
    levers: tuple[str, ...]
    simulated: bool
    entry_hash: str | None = None
    contents: TaskContents | None = None

    @classmethod
    def of_tree(cls, tree: Mapping[str, Any], contents: TaskContents | None) -> AskedQuestion:
        """A question as JSON values have it, with the contents of its tasks, which are kept apart."""
        return cls(**{**tree, "levers": tuple(tree["levers"]), "contents": contents})

    @cached_property
    def key(self) -> str:
        """The same for questions that may be one."""
        claim = "better" if self.claim == "worse" else self.claim
        return digest([self.metric, claim, self.baseline, self.simulated])

    @cached_property
    def asserted(self) -> frozenset[str]:
        """The levers, turned round where the claim is that the metric falls: `worse` says of one direction what `better` says of the other.

        That a higher rate is better, that a lower one is worse, and that a lower one is better where less is better are one claim. Equality has no direction.
        """
        if self.claim == "equal":
            return frozenset(lever.lstrip("+-") for lever in self.levers)
        rises = (self.claim == "worse") == (self.direction == "min")
        return frozenset(self.levers if rises else map(_flip_sign, self.levers))

    def is_same(self, other: AskedQuestion) -> bool:
        """Whether both are one question: the same key, a lever in common, and at least half of the smaller set of tasks."""
        if self.key != other.key or not self.asserted & other.asserted:
            return False
        return _same_tasks(self, other)

    def has_tasks_of(self, other: AskedQuestion) -> bool:
        """Whether both are on the same tasks, by `ALIKE`."""
        return _same_tasks(self, other)

    def is_on(self, contents: TaskContents) -> bool:
        """Whether it is on tasks of these contents, by `ALIKE`."""
        return self.contents is not None and is_alike(self.contents, contents)

    def is_elsewhere(self, other: AskedQuestion) -> bool:
        """Whether the other asks the same on other tasks."""
        return self.key == other.key and bool(self.asserted & other.asserted) and not _same_tasks(self, other)

    def is_similar(self, other: AskedQuestion) -> bool:
        """Whether the other is another question on the same tasks: by another metric, claim, baseline or lever."""
        return self.simulated == other.simulated and not self.is_same(other) and _same_tasks(self, other)


@attrs.frozen(kw_only=True)
class ScoredEntry:
    """A benchmark entry of an experiment: its name and split, the hash of its rows, and what its tasks ask."""

    name: str
    split: str
    entry_hash: str | None
    contents: TaskContents | None

    def is_same(self, other: ScoredEntry) -> bool:
        """Whether both have the same tasks, by `ALIKE`."""
        return _same_tasks(self, other)


def _same_tasks[T: (AskedQuestion, ScoredEntry)](one: T, other: T) -> bool:
    if one.entry_hash is not None and one.entry_hash == other.entry_hash:
        return True
    if one.contents is None or other.contents is None:
        return False
    return is_alike(one.contents, other.contents)


def scored_entries(facts: Tree) -> Iterator[ScoredEntry]:
    """The benchmark entries of experiment.json."""
    for name, entry in (facts.get("benchmarks") or {}).items():
        yield ScoredEntry(
            name=name,
            split=str(entry.get("split")),
            entry_hash=entry.get("hash"),
            contents=_contents(facts, name),
        )


def _entry_of_metric(metric: str, names: Sequence[str]) -> str | None:
    """The entry that `<entry>.<metric>` names; of two that fit, the longer name is meant. None if none fits."""
    fitting = [name for name in names if metric.startswith(f"{name}.")]
    return max(fitting, key=len, default=None)


def _contents(facts: Tree, entry: str) -> TaskContents | None:
    """The task contents of an entry by experiment.json; None in older records."""
    tree = (facts.get("task_contents") or {}).get(entry)
    return None if tree is None else TaskContents.of_tree(tree)


def asked_question(
    facts: Tree, resolved: Tree, *, simulated: bool, entry: str | None = None
) -> AskedQuestion | None:
    """The question of a record; None if it asks nothing.

    Args:
        facts: experiment.json.
        resolved: resolved.json.
        simulated: whether a backend of it only imitates a model.
        entry: the benchmark entry that decides; by default that of the success metric.
    """
    metric, entries = facts.get("success_metric"), list(resolved.get("benchmarks") or ())
    own = None if metric is None else _entry_of_metric(metric, [str(each["name"]) for each in entries])
    if metric is None or own is None:
        return None
    deciding = own if entry is None else entry
    scored = next(each for each in entries if each["name"] == deciding)
    metadata = resolved.get("metadata") or {}
    baseline = str(facts.get("baseline") or BASE_MODEL)
    contrast = metadata.get("contrast") or {}
    arms = {
        name: runs
        for name, runs in _arms(resolved).items()
        if name == baseline or contrast.get("arm") in (None, name)
    }
    return AskedQuestion(
        metric=_metric_kind(metric.removeprefix(f"{own}."), scored),
        direction=str(facts.get("direction") or metadata.get("direction") or "max"),
        claim=str(metadata.get("claim") or "better"),
        baseline=_composition(baseline, arms),
        levers=tuple(sorted(_levers(baseline, arms))),
        simulated=simulated,
        entry_hash=scored.get("hash"),
        contents=_contents(facts, deciding),
    )


def _arms(resolved: Tree) -> dict[str, list[Tree]]:
    """The configs of each compared arm: one, or one a stage."""
    found: dict[str, dict[object, Tree]] = {}
    for arm in resolved.get("arms") or ():
        if arm.get("purpose") is None and isinstance(arm.get("run"), Mapping):
            found.setdefault(str(arm["arm"]), {}).setdefault(arm.get("stage"), arm["run"])
    return {name: list(stages.values()) for name, stages in found.items()}


def _metric_kind(label: str, entry: Tree) -> str:
    """The plugin behind a metric's label; the label of a metric that isn't on record."""
    for metric in entry.get("metrics") or ():
        kind = str(metric["kind"]).rpartition("/")[2]
        if label in (metric.get("name"), kind):
            return kind
    return label


def _composition(baseline: str, arms: Mapping[str, Sequence[Tree]]) -> str:
    """A baseline by its model and its algorithms, not by its name."""
    if baseline == BASE_MODEL or baseline not in arms:
        models = {_part_name(runs[0], "model", "name") for runs in arms.values()}
        return f"{BASE_MODEL} {', '.join(sorted(models))}"
    runs = arms[baseline]
    algorithms = (_part_name(run, "algorithm", "kind").rpartition("/")[2] for run in runs)
    return f"{_part_name(runs[0], 'model', 'name')} trained by {', '.join(algorithms)}"


def _part_name(run: Tree, part: str, key: str) -> str:
    return str((run.get(part) or {}).get(key))


def _levers(baseline: str, arms: Mapping[str, Sequence[Tree]]) -> set[str]:
    """The differences between an arm and the baseline: keys, with a sign for numbers that are larger or smaller.

    Against the base model it is the algorithm: whether training by it pays is one question, however it is set up.
    """
    compared = [runs for name, runs in arms.items() if name != baseline]
    if baseline == BASE_MODEL or baseline not in arms:
        return {
            f"training by {_part_name(run, 'algorithm', 'kind').rpartition('/')[2]}"
            for runs in compared
            for run in runs
        }
    before = _by_path(arms[baseline])
    return {lever for runs in compared for lever in _differing(before, _by_path(runs))}


def _by_path(runs: Sequence[Tree]) -> dict[str, str]:
    """The values of an arm by path, without the places in lists: another stage or transform in front changes no path."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for path, value in short_leaves(run).items():
            found.setdefault(_PLACE.sub("[]", path), []).append(value)
    return {path: " ".join(values) for path, values in found.items() if path not in _NOT_LEVERS}


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    paths = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    for path in paths or {_NO_LEVER}:
        one, other = _number(before.get(path)), _number(after.get(path))
        yield path if one is None or other is None else f"{'+' if other > one else '-'}{path}"


def _flip_sign(lever: str) -> str:
    """A lever with the other sign; one without a sign gets one that none has by itself."""
    return f"-{lever[1:]}" if lever[0] == "+" else f"+{lever[1:]}" if lever[0] == "-" else f"not {lever}"


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def looks_taken(experiment_id: str, conclusions: Sequence[Tree]) -> tuple[Look, ...]:
    """The looks that an experiment took at its question.

    A conclusion of an incomplete experiment can't support a claim, so it and the one that completes it are one look; an incomplete one that was
    left at that is one as well, since it may have been left for its numbers. Conclusions of one number are one look: the experiment was cut off
    after the first, and concluded again with nothing new.

    Args:
        experiment_id: the experiment.
        conclusions: its conclusions, the oldest first.
    """
    tested = (_look(experiment_id, tree) for tree in conclusions)
    last = [look for look in tested if look is not None][-1:]
    return complete_looks(experiment_id, conclusions) or tuple(last)


def complete_looks(experiment_id: str, conclusions: Sequence[Tree]) -> tuple[Look, ...]:
    """The looks of `looks_taken` at which every planned run had a score."""
    found: dict[object, Look] = {}
    for place, tree in enumerate(conclusions):
        series = tree.get("looks") or {}
        look = _look(experiment_id, tree)
        if series.get("complete", True) and look is not None:
            found[series.get("number", f"conclusion {place}")] = look
    return tuple(found.values())


def _look(experiment_id: str, conclusion: Tree) -> Look | None:
    """The look of a conclusion; None if it didn't test anything."""
    confirmed = conclusion.get("confirmed")
    compared = [confirmed["comparison"]] if confirmed else conclusion.get("comparisons") or ()
    tested = [each for each in compared if each.get("p_value") is not None]
    verdict = conclusion.get("verdict")
    if not tested or verdict in (None, "INVALID"):
        return None
    best = min(tested, key=_p_corrected)
    return Look(
        experiment_id=experiment_id,
        verdict=str(verdict),
        arm=best["arm"],
        effect=best.get("effect"),
        low=best.get("low"),
        high=best.get("high"),
        p_value=_p_corrected(best),
        level=(conclusion.get("procedure") or {}).get("level"),
    )


def _p_corrected(comparison: Tree) -> float:
    corrected = comparison.get("p_corrected")
    return float(comparison["p_value"] if corrected is None else corrected)
