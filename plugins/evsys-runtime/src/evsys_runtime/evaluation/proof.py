"""Proof entries: an entry that selected a checkpoint is scored again on the selected weights alone, and that score is what counts.

The best of many looks at the same tasks is partly luck. With a temperature the proof has fresh samples of all tasks; at
temperature 0 those would be the same answers, so it has the half of the tasks that had no part in the selection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import attrs

from evsys_record.hashing import digest
from evsys_record.proofs import proof_name
from evsys_runtime.config.plan import CheckpointSelection
from evsys_runtime.evaluation.benchmarks import BoundBenchmark

__all__ = ["proof_entry", "proofs_of", "selecting_tasks"]


def proofs_of(
    selection: CheckpointSelection, benchmarks: Sequence[BoundBenchmark]
) -> tuple[BoundBenchmark, ...]:
    """The proofs that a selection needs: one, or none if the entry that decides isn't among those, or selects nothing."""
    held_out = selection.proof == "held_out_tasks"
    return tuple(
        proof_entry(each, held_out=held_out) for each in benchmarks if each.name == selection.scored_again
    )


def proof_entry(bound: BoundBenchmark, *, held_out: bool) -> BoundBenchmark:
    """The proof of an entry. Its sampling seeds differ, since they follow from its name.

    Args:
        bound: the entry.
        held_out: leave out the tasks that select.
    """
    proof = attrs.evolve(bound, name=proof_name(bound.name), run_every=None, models=())
    if not held_out:
        return proof
    seen = selecting_tasks(bound)
    return attrs.evolve(
        proof,
        tasks=tuple(task for task in bound.tasks if task.task_id not in seen),
        benchmark_hash=digest([bound.benchmark_hash, "without the tasks that select"]),
    )


def selecting_tasks(bound: BoundBenchmark) -> frozenset[str]:
    """At most half of an entry's tasks, the same ones in every run: in the order of their hashes, clusters undivided."""
    clusters = bound.clusters
    units: dict[str, list[str]] = {}
    for task in bound.tasks:
        cluster = clusters.get(task.task_id)
        unit = f"task {task.task_id}" if cluster is None else f"cluster {cluster}"
        units.setdefault(unit, []).append(task.task_id)
    room, chosen = len(bound.tasks) // 2, set[str]()
    for unit in sorted(units, key=_order):
        if len(chosen) + len(units[unit]) <= room:
            chosen.update(units[unit])
    return frozenset(chosen)


def _order(unit: str) -> bytes:
    return hashlib.blake2b(f"evsys-select/1:{unit}".encode(), digest_size=16).digest()
