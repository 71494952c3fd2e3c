"""Which checkpoint of a run counts, and what keeps that choice from flattering its score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

__all__ = ["Proof", "SelectedCheckpoint", "Selection"]

Proof = Literal["other_entry", "fresh_samples", "held_out_tasks"]


@attrs.frozen(kw_only=True)
class SelectedCheckpoint:
    """The checkpoint of a run that everything after training uses, selected among `looks` scored steps.

    `score` and `last_score` are the values of `by`, `<entry>.<metric>`, at `step` and at `last_step`, on the tasks that select.
    `p_value` tests on those tasks that the last weights score the same, corrected for the number of looks; None without a test.
    """

    step: int
    checkpoint: str
    by: str
    score: float
    last_step: int
    last_score: float | None = None
    looks: int = 1
    p_value: float | None = None
    last_is_worse: bool = False


@attrs.frozen(kw_only=True)
class Selection:
    """How the checkpoint of each run was selected.

    `proof` says where the score in the verdict comes from if checkpoints were selected: another entry than the one that
    selected, fresh samples of the same tasks, or the half of its tasks that had no part in the selection. `reason` says why the
    last checkpoint counts although an entry is scored during training. `runs` has the selected checkpoint by run.
    """

    checkpoint: Literal["best", "last"]
    by: str | None = None
    proof: Proof | None = None
    reason: str | None = None
    runs: Mapping[str, SelectedCheckpoint] = attrs.field(factory=dict)
