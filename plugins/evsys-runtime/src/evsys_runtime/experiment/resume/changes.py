"""Compares an experiment's ingredients now with those when it began: it continues only unchanged."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, Problem, StoreError
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json
from evsys_record.hashing import digest_bytes
from evsys_record.provenance import collect, evsys_distributions
from evsys_record.secrets import Redactor
from evsys_runtime.config.plan import CheckpointSelection, Plan
from evsys_runtime.data.ingredients import differences
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.state.resolved_tree import (
    arms_by_id,
    recorded_resolution,
    resolved_tree,
    with_confirm_seeds,
)

__all__ = [
    "odd_changes",
    "original_plan",
    "refuse",
    "refuse_changes",
    "scored_outside_harness",
]

OLDER = {"select": {"by": None, "checkpoint": "last"}, "reuse_arms": False}
"""The values of keys for experiments that began before the keys existed."""

HINT = "put it back as it was, or begin a new experiment from its checkpoints: evsys resume --fork"
_ALWAYS = ("evsys-core", "evsys-runtime")
_MOST_TOLD = 20


def refuse_changes(
    record: ExperimentRecord, plan: Plan, benchmarks: Sequence[BoundBenchmark], redactor: Redactor
) -> None:
    """Compare what is known before any row is read: the file, what it means in full, the benchmarks, the plugins' versions.

    Raises:
        ConfigError: something differs; every difference.
    """
    facts, then = record.facts, recorded_resolution(record)
    problems = []
    if digest_bytes(record.config_bytes) != facts["config_hash"]:
        problems.append("config.yaml in the record is not the file that the experiment began with")
    problems += _benchmarks(facts.get("benchmarks") or {}, benchmarks)
    if then is not None:
        now = redactor.tree(resolved_tree(plan, benchmarks))
        problems += [f"resolved.json: {line}" for line in _resolved_changes(then, now)]
        problems += _versions(facts["provenance"]["evsys"], then)
    refuse(record, problems)


def original_plan(plan: Plan, directory: Path) -> Plan:
    """The plan of an experiment on record, without what a key selects by default added after it began."""
    try:
        tree = read_json(directory / "resolved.json")
    except StoreError:  # `refuse_changes` and `odd_changes` say what can't be compared
        return plan
    plan = plan if "select" in tree else attrs.evolve(plan, selection=CheckpointSelection())
    plan = with_confirm_seeds(plan, (tree.get("confirm") or {}).get("seeds"))
    return _with_first_tasks(plan, {entry["name"] for entry in tree["benchmarks"] if "limit_by" not in entry})


def _with_first_tasks(plan: Plan, older: Collection[str]) -> Plan:
    """Entries of records that don't say how `limit` chose tasks: it took the first ones."""
    metadata = plan.experiment.metadata
    if not any(entry.label in older and entry.limit is not None for entry in metadata.benchmarks):
        return plan
    entries = tuple(
        attrs.evolve(entry, limit_by="first") if entry.label in older else entry
        for entry in metadata.benchmarks
    )
    return attrs.evolve(
        plan, experiment=attrs.evolve(plan.experiment, metadata=attrs.evolve(metadata, benchmark=entries))
    )


def scored_outside_harness(record: ExperimentRecord) -> bool:
    """Whether it began when only `run.agent` reached scorings, not what the algorithm's params name. It is finished that way."""
    then = recorded_resolution(record)
    return then is not None and not all("harness" in arm for arm in then["arms"])


def refuse(record: ExperimentRecord, problems: Sequence[str]) -> None:
    """Refuse to continue with an experiment because of what changed, where something did.

    Raises:
        ConfigError: every difference.
    """
    if problems:
        source = record.experiment_id
        told = [Problem(path="", message=line, source=source) for line in problems[:_MOST_TOLD]]
        told[-1] = Problem(path="", message=told[-1].message, source=source, hint=HINT)
        raise ConfigError(told)


def odd_changes(record: ExperimentRecord, plan: Plan) -> Iterator[str]:
    """Differences that may change last bits, and parts that couldn't be compared: a line for each."""
    path = record.directory / "resolved.json"
    if path.exists() and recorded_resolution(record) is None:
        yield f"{path} is damaged: whether defaults have changed since is unknown; it is rebuilt"
    then, now = record.facts["provenance"], collect(plan.project_root)
    for what in ("libraries", "environment"):
        for found in differences(now[what], then[what]):
            yield f"resumed with {found.path} {_value_text(found.wanted)}, begun with {_value_text(found.found)}: last bits may differ"
    if (begun := then["python"]["version"]) != platform.python_version():
        yield f"resumed with Python {platform.python_version()}, begun with {begun}: last bits may differ"


def _benchmarks(then: Mapping[str, Any], benchmarks: Sequence[BoundBenchmark]) -> Iterator[str]:
    for bound in benchmarks:
        known = then.get(bound.name, {})
        for key, now, what in (
            ("hash", bound.benchmark_hash, "the tasks"),
            ("verifier_hash", bound.verifier_hash, "the verifiers"),
        ):
            if known.get(key) != now:
                yield f"{what} of benchmark {bound.name!r} changed since ({known.get(key)} then, {now} now)"


def _resolved_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    planned = {arm["run_id"] for arm in now["arms"]}
    # Arms added on the way are made of the same file; proposals.jsonl has them.
    then = {**OLDER, **then, "arms": [arm for arm in then["arms"] if arm["run_id"] in planned]}
    if (then.get("confirm") or {}).get(
        "seeds", 0
    ) is None:  # killed before the number that was chosen was written
        then["confirm"] = now["confirm"]
    then["metadata"] = {"allow_leak": False, **then["metadata"]}
    methods = {entry["name"]: entry["limit_by"] for entry in now["benchmarks"]}
    then["benchmarks"] = [{"limit_by": methods.get(entry["name"]), **entry} for entry in then["benchmarks"]]
    for found in differences(arms_by_id(now), arms_by_id(then)):
        if found.path.endswith(".max_turns") and (found.found, found.wanted) == (1, None):
            continue  # the default was 1 answer, and runs whose agents asked for more could not train
        yield f"{found.path} was {_value_text(found.found)} and is {_value_text(found.wanted)}"


def _versions(then: Mapping[str, str], resolved: Mapping[str, Any]) -> Iterator[str]:
    """Distributions that this experiment uses and that are of another version now."""
    now = evsys_distributions()
    for name in sorted({*_ALWAYS, *_distributions(resolved)}):
        if name in then and then[name] != now.get(name):
            yield f"{name} was {then[name]} and is {now.get(name, 'not installed')}"


def _distributions(tree: Any) -> Iterator[str]:
    """Whose plugins a resolved experiment names: their names are `<distribution>/<plugin>`."""
    if isinstance(tree, Mapping):
        kind = tree.get("kind")
        if isinstance(kind, str) and "/" in kind:
            yield kind.partition("/")[0]
        for value in tree.values():
            yield from _distributions(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _distributions(value)


def _value_text(value: Any) -> str:
    return "not there" if value is None else str(value)
