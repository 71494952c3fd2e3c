"""The contents of a benchmark's tasks, as a record keeps them: by these a benchmark is recognised under any name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys_record.signatures import share_alike

__all__ = ["ALIKE", "SKETCH", "TaskContents", "is_alike", "share_in_common"]

ALIKE = 0.5
"""Benchmarks that share this part of the smaller one's tasks are one benchmark."""


SKETCH = 512
"""Tasks whose hashes are kept. With more tasks these are the smallest hashes, a random sample that two benchmarks draw alike."""

_ABOVE_ALL = "g"
"""Sorts behind every hexadecimal digit."""


@attrs.frozen(kw_only=True)
class TaskContents:
    """The questions of a benchmark: how many different `tasks`, the `hash` of all, and the smallest hashes of single ones.

    Names, ids, order, metadata, verifiers and a system message that all tasks have don't count, nor do case, width, white space and
    outer punctuation.
    """

    tasks: int
    hash: str
    sketch: tuple[str, ...]
    signatures: tuple[str, ...] = attrs.field(default=(), eq=False)

    @classmethod
    def of_tree(cls, tree: Mapping[str, Any]) -> TaskContents:
        """Read back the output of `as_json`."""
        return cls(
            tasks=int(tree["tasks"]),
            hash=str(tree["hash"]),
            sketch=tuple(str(tree["sketch"]).split()),
            signatures=tuple(str(tree.get("signatures") or "").split()),
        )

    @property
    def as_json(self) -> dict[str, Any]:
        """It as JSON values, with the sketch and the signatures as one text each."""
        return {
            "tasks": self.tasks,
            "hash": self.hash,
            "sketch": " ".join(self.sketch),
            "signatures": " ".join(self.signatures),
        }

    @property
    def known_to(self) -> str:
        """Every task with a hash up to this one is in the sketch."""
        return self.sketch[-1] if len(self.sketch) < self.tasks else _ABOVE_ALL


def share_in_common(one: TaskContents, other: TaskContents) -> float:
    """The share of the smaller benchmark's tasks that the other has as well; estimated if either has more than `SKETCH` tasks.

    Below the hash to which both sketches are complete, both hold every task that they have (Broder 1997, "On the resemblance and
    containment of documents").
    """
    if one.hash == other.hash:
        return 1.0
    known_to = min(one.known_to, other.known_to)
    first, second = ({key for key in each.sketch if key <= known_to} for each in (one, other))
    smaller = min(len(first), len(second))
    return len(first & second) / smaller if smaller else 0.0


def is_alike(one: TaskContents, other: TaskContents) -> bool:
    """Whether both are one benchmark: at least `ALIKE` of the smaller one's tasks are in the other, equally or nearly so."""
    if share_in_common(one, other) >= ALIKE:
        return True
    return share_alike(one.signatures, other.signatures) >= ALIKE
