"""Part of a benchmark: a sample of its tasks that holds every group in proportion, or its first tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Literal

from evsys.types import HarborTask

__all__ = ["LimitBy", "limit_tasks"]

type LimitBy = Literal["sample", "first"]

_MOST_LABELS = 20
"""With more different answers than this, a task's answer is not a label."""


def limit_tasks[T: HarborTask](
    tasks: Sequence[T], limit: int | None, by: LimitBy = "sample", keys: Sequence[str] = ()
) -> Sequence[T]:
    """The scored tasks, in their order.

    A sample is the same in every run: tasks are drawn in the order of their ids' hashes. Each group gets a share of the limit in
    proportion to its size, rounded by the largest remainder. Tasks with the same values of `keys` form a group; without `keys`
    tasks with the same answer do, if the answers are labels.

    Args:
        tasks: all of them.
        limit: how many to take at most; None takes all.
        by: `sample`, or `first` for the first ones.
        keys: metadata keys.
    """
    if limit is None or limit >= len(tasks):
        return tasks
    if by == "first":
        return tasks[:limit]
    groups: dict[Hashable, list[int]] = {}
    for place, group in enumerate(_groups(tasks, limit, keys)):
        groups.setdefault(group, []).append(place)
    members = sorted(groups.values(), key=lambda places: min(_order(tasks[place]) for place in places))
    chosen: set[int] = set()
    for places, share in zip(members, _shares([len(places) for places in members], limit), strict=True):
        chosen.update(sorted(places, key=lambda place: _order(tasks[place]))[:share])
    return tuple(task for place, task in enumerate(tasks) if place in chosen)


def _groups(tasks: Sequence[HarborTask], limit: int, keys: Sequence[str]) -> Sequence[Hashable]:
    if keys:
        return [tuple(str(task.metadata.get(key)) for key in keys) for task in tasks]
    answers = [None if task.verifier is None else repr(task.verifier.expected) for task in tasks]
    return answers if len(set(answers)) <= min(_MOST_LABELS, limit) else [None] * len(tasks)


def _shares(sizes: Sequence[int], limit: int) -> list[int]:
    """`limit` in proportion to `sizes`; what rounding down leaves goes to the largest remainders."""
    total = sum(sizes)
    shares = [size * limit // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda at: -(sizes[at] * limit % total))
    for at in by_remainder[: limit - sum(shares)]:
        shares[at] += 1
    return shares


def _order(task: HarborTask) -> bytes:
    return hashlib.blake2b(f"evsys-limit/1:{task.task_id}".encode(), digest_size=16).digest()
