"""The question of an experiment, put on record before its first step, and whether it is another one than was asked
before.

A question changed when results are known can be changed until it is answered as wished. It may be, and is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import EvsysError
from evsys_record.files import read_json
from evsys_record.hashing import digest
from evsys_runtime.config.plan import Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.lineage.experiments import earlier_index, query_index

__all__ = ["CHANGED", "PREREGISTERED", "child_of", "preregister", "question_changed"]

PREREGISTERED, CHANGED = "preregistered", "question_changed"
"""The keys of experiment.json."""


def child_of(plan: Plan, experiment_id: str | None) -> Plan:
    """The plan of an experiment whose parent is another one, regardless of its file says."""
    metadata = attrs.evolve(plan.experiment.metadata, parent_experiment_id=experiment_id)
    return attrs.evolve(plan, experiment=attrs.evolve(plan.experiment, metadata=metadata))


def preregister(plan: Plan, benchmarks: Sequence[BoundBenchmark]) -> dict[str, Any]:
    """The question, and its `digest`; `arms` is the digest of the compared recipes, None if a search is to find
    them.
    """
    metadata, confirm = plan.experiment.metadata, plan.experiment.confirm
    asked: dict[str, Any] = {
        "hypothesis": metadata.hypothesis,
        "success_metric": str(plan.success) if plan.success else None,
        "direction": plan.success.direction if plan.success else None,
        "minimum_effect": metadata.minimum_effect,
        "baseline": metadata.baseline,
        "confirm": None if confirm is None else {**attrs.asdict(confirm), "seeds": confirm.expected_seeds},
        "checkpoint": plan.selection.by or "last",
        "benchmarks": {
            b.name: {"split": b.split, "hash": b.benchmark_hash, "verifier_hash": b.verifier_hash}
            for b in benchmarks
        },
    }
    recipes = sorted({arm.digest for arm in plan.arms if arm.purpose == "candidate"})
    # Keys asked for only: the digest of a question asked before they existed stays what it was.
    if metadata.claim != "better":
        asked["claim"] = metadata.claim
    if metadata.margin is not None:
        asked["margin"] = metadata.margin
    if metadata.contrast is not None:
        asked["contrast"] = attrs.asdict(metadata.contrast)
    return {**asked, "arms": digest(recipes) if recipes else None, "digest": digest(asked)}


def question_changed(
    experiments: Path, asked: Mapping[str, Any], forks: Path | None, tell: Callable[[str], None]
) -> dict[str, Any] | None:
    """The experiment with results that asked something else about the same arms, and the changes; None if there
    isn't one.

    It is the forked one, else the first on record with these arms. Blocking.

    Args:
        experiments: the folder of all experiments.
        asked: the result of `preregister`.
        forks: the folder of the experiment that this one branches off from.
        tell: gets what can't be read.
    """
    with earlier_index(experiments, None, tell) as index:
        if index is None:
            return None
        query = (
            "SELECT e.folder FROM experiment e WHERE NOT e.dry AND {} AND EXISTS (SELECT 1 FROM run r WHERE "
            "r.experiment = e.id AND r.state = 'completed') ORDER BY e.moment, e.folder LIMIT 1"
        )
        if forks is not None:
            found = query_index(index, query.format("e.folder = ?"), (forks.name,), tell)
        else:
            of_arms = "e.id IN (SELECT experiment FROM label WHERE kind = 'arms' AND value = ?)"
            found = query_index(index, query.format(of_arms), (asked["arms"],), tell)
    for (folder,) in found:
        try:
            before = read_json(experiments / folder / "experiment.json").get(PREREGISTERED)
        except EvsysError as error:
            tell(f"what {folder} asked can't be read: {error.message}")
            continue
        changes = [] if before is None else list(_changes(before, asked))
        return {"experiment_id": folder, "changes": changes} if changes else None
    return None


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The changes of the question, each in a line."""
    before = {"checkpoint": "last", **before}  # records of earlier versions compared the last ones
    for key in sorted((before.keys() | now.keys()) - {"arms", "digest", "benchmarks"}):
        if before.get(key) != now.get(key):
            yield f"{key} was {_value_text(before.get(key))} and is {_value_text(now.get(key))}"
    then, there = before.get("benchmarks") or {}, now.get("benchmarks") or {}
    for name in sorted(then.keys() | there.keys()):
        if then.get(name) == there.get(name):
            continue
        if name not in there:
            yield f"benchmark {name} is gone"
        elif name not in then:
            yield f"benchmark {name} is new"
        else:
            parts = (("hash", "tasks"), ("verifier_hash", "verifiers"), ("split", "split"))
            changed = [what for key, what in parts if then[name].get(key) != there[name].get(key)]
            yield f"benchmark {name} has other {' and '.join(changed)}"


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value_text(value[key])}" for key in sorted(value)) + "}"
    return "not set" if value is None else repr(value) if isinstance(value, str) else str(value)
