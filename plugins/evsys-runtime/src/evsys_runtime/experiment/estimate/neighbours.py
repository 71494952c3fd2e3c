"""Arms on record like planned ones: the same, or the same but for a few keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evsys_record.differing import differences
from evsys_record.leaves import arm_leaves, benchmark_leaves, short_leaves
from evsys_runtime.experiment.estimate.results import Neighbour
from evsys_runtime.experiment.insight.evidence import Evidence, PastArm, arm_label

__all__ = ["neighbours"]

NEAR = 3
"""An arm with more differences is another one."""

_ROWS = "data.rows"
"""The key of the rows' hash among the differences."""

MOST_OF_ARM = 3
"""Reported neighbours of one arm."""


def neighbours(
    resolved: Mapping[str, Any], evidence: Evidence, fingerprints: Mapping[str, str]
) -> list[Neighbour]:
    """The nearest arms on record of each planned arm, the nearest first, of equals the newest.

    Args:
        resolved: the plan as resolved.json has it.
        evidence: what is on record.
        fingerprints: of each planned arm's rows, as far as they were read.
    """
    planned: dict[str, list[Mapping[str, Any]]] = {}
    for arm in resolved["arms"]:
        if arm.get("purpose") is not None:  # it is the baseline again
            continue
        planned.setdefault(arm_label(arm), []).append(arm)
    scored_on = benchmark_leaves(resolved["benchmarks"])
    configs = (short_leaves(repeats[0]["run"]) for repeats in planned.values())
    past = [(arm, _arm_leaves(arm)) for arm in evidence.arms_near(configs, NEAR)]
    if not past:
        return []
    found: list[Neighbour] = []
    for name, repeats in planned.items():
        rows = fingerprints.get(name)
        own = {**arm_leaves(repeats[0]["run"]), **scored_on}
        seeds = {(each["base_seed"], each["repeat"]) for each in repeats}
        near = [
            _neighbour(name, _with_rows(own, rows, leaves), seeds, arm, leaves)
            for arm, leaves in past
            if _may_be_near(own, leaves)
        ]
        near = [each for each in near if len(each.differences) <= NEAR]
        found += sorted(near, key=lambda each: len(each.differences))[:MOST_OF_ARM]
    return found


def _arm_leaves(arm: PastArm) -> dict[str, Any]:
    """Its config, what it was scored on, and the hash of its rows."""
    rows = next((run.data_hash for run in arm.runs if run.data_hash is not None), None)
    known = {} if rows is None else {_ROWS: rows}
    return {**arm.leaves, **arm.scored_on, **known}


def _with_rows(own: Mapping[str, Any], rows: str | None, other: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the hash of the rows; where they weren't read they are taken for the same."""
    known = other.get(_ROWS) if rows is None or _ROWS not in other else rows
    return own if known is None else {**own, _ROWS: known}


def _may_be_near(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return sum(1 for path in one if one[path] != other.get(path)) <= NEAR


def _neighbour(
    name: str, own: Mapping[str, Any], seeds: set[tuple[int, int]], arm: PastArm, leaves: Mapping[str, Any]
) -> Neighbour:
    past = arm.experiment
    scores = [run.score for run in arm.runs if run.score is not None]
    statuses = list(dict.fromkeys(run.status for run in arm.runs))
    return Neighbour(
        arm=name,
        experiment_id=past.experiment_id,
        other_arm=arm.name,
        same_seeds=seeds <= set(arm.base_seeds),
        differences=differences(own, leaves),
        status=", ".join(statuses) or None,
        score=sum(scores) / len(scores) if scores else None,
        verdict=past.verdict,
        subject=past.subject,
        marks=past.marks,
        outcome=_outcome(past.comparisons, arm.name),
    )


def _outcome(comparisons: Sequence[Any], arm: str) -> str | None:
    return next((comparison.outcome for comparison in comparisons if comparison.arm == arm), None)
