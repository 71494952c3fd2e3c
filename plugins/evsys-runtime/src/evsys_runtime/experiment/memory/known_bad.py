"""What `evsys validate` and `plan` warn of: arms that lie where others failed and none completed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evsys_runtime.config.plan import Plan
from evsys_runtime.experiment.memory.failures import BAD, failure_classes, meets
from evsys_runtime.experiment.memory.on_record import ArmsOnRecord
from evsys_runtime.record.index import Index
from evsys_runtime.record.leaves import short_leaves

__all__ = ["known_bad"]

_MOST_NAMED = 3
_OFTEN = 2
"""Experiments in which the very same config failed, without ever completing, that are worth a warning."""

_PLACES = ", ".join("?" * len(BAD))

type Numbers = frozenset[int]


def known_bad(plan: Plan, index: Index) -> tuple[str, ...]:
    """A warning for each region of failures that is known to be bad and has arms of the plan in it, and for each way in which an
    arm's very config failed in several experiments. Nothing is read but the index.
    """
    if not index.rows(f"SELECT 1 FROM run WHERE state IN ({_PLACES}) OR diverged LIMIT 1", BAD):  # noqa: S608
        return ()
    from evsys_runtime.experiment.resolved import (
        resolved_runs,  # half of the runtime, for what is asked seldom
    )

    planned = {name: short_leaves(run) for name, run in resolved_runs(plan).items()}
    on_record = ArmsOnRecord.of(index)
    return tuple(dict.fromkeys([*_regions(planned, index, on_record), *_again(planned, index, on_record)]))


def _regions(
    planned: Mapping[str, Mapping[str, str]], index: Index, on_record: ArmsOnRecord
) -> Iterator[str]:
    for each in failure_classes(index, on_record):
        region = each.region
        if region is None or not region.known_bad:
            continue
        inside = [
            name for name, config in planned.items() if all(meets(config, one) for one in region.conditions)
        ]
        if inside:
            yield (
                f"{_arms(inside, len(planned))} where {region.failed} configs failed on record and none completed: {region} "
                f"({each.name}: {each.message}; {_listed(each.experiments)})"
            )


def _again(planned: Mapping[str, Mapping[str, str]], index: Index, on_record: ArmsOnRecord) -> Iterator[str]:
    """The same config, whatever it was called and with whatever seed."""
    numbered = {leaf: number for number, leaf in on_record.leaves.items()}
    wanted: dict[Numbers, str] = {}
    for name, config in planned.items():
        numbers = frozenset(numbered.get(leaf, 0) for leaf in config.items())
        wanted.setdefault(numbers, name)
    same = {(experiment, arm): numbers for experiment, arm, numbers in on_record.arms if numbers in wanted}
    if not same:
        return
    ended: dict[Numbers, tuple[set[str], set[str]]] = {}
    query = (
        "SELECT r.experiment, r.arm, r.state, e.folder FROM run r JOIN experiment e ON e.id = r.experiment "  # noqa: S608
        f"WHERE NOT e.dry AND r.state IN ('completed', {_PLACES}) "
        "ORDER BY e.moment DESC, e.folder DESC"
    )
    for experiment, arm, state, folder in index.rows(query, BAD):
        if (experiment, arm) in same:
            completed, failed = ended.setdefault(same[experiment, arm], (set(), set()))
            (completed if state == "completed" else failed).add(folder)
    for numbers, (completed, failed) in ended.items():
        if not completed and len(failed) >= _OFTEN:
            folders = sorted(failed, reverse=True)
            yield f"arm {wanted[numbers]}: the same config failed in {len(failed)} experiments and never completed ({_listed(folders)})"


def _arms(inside: Sequence[str], planned: int) -> str:
    if planned == 1:
        return "it lies"
    if len(inside) == planned:
        return f"all {planned} arms lie"
    return (
        f"arm {inside[0]} lies"
        if len(inside) == 1
        else f"{len(inside)} of {planned} arms ({_listed(inside)}) lie"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
