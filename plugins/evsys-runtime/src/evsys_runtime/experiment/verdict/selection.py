"""Which checkpoint of each run counts, and how its score is proven, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evsys.types import Proof, SelectedCheckpoint, Selection
from evsys_runtime.experiment.verdict.tables import number

__all__ = ["checkpoint_words", "selection_lines"]

_PROOFS: Mapping[Proof, str] = {
    "other_entry": "another entry decides",
    "fresh_samples": "the selected checkpoints are scored again on fresh samples, which decide",
    "held_out_tasks": "one half of its tasks selects, the other half decides",
}


def selection_lines(selection: Selection | None) -> Iterator[str]:
    """How checkpoints were selected, then a line for each run; nothing without a selection."""
    if selection is None:
        return
    if selection.checkpoint == "last":
        yield f"the last checkpoint of each run counts: {selection.reason}"
        return
    proof = "" if selection.proof is None else f"; {_PROOFS[selection.proof]}"
    yield f"the best checkpoint of each run by {selection.by} counts{proof}"
    for run_id, selected in selection.runs.items():
        yield f"{run_id}: {checkpoint_words(selected)}"


def checkpoint_words(selected: SelectedCheckpoint) -> str:
    """The selected checkpoint of a run, and how much worse its last one is."""
    score = f"{selected.by} {number(selected.score)}"
    if selected.step == selected.last_step:
        return f"step {selected.step}, the last ({score}, the best of {selected.looks} looks)"
    last = "not scored" if selected.last_score is None else number(selected.last_score)
    p = "" if selected.p_value is None else f" (p = {selected.p_value:.2g})"
    worse = "worse by more than noise" if selected.last_is_worse else "not worse by more than noise"
    return (
        f"step {selected.step} of {selected.last_step} ({score}, the best of {selected.looks} looks); "
        f"the last checkpoint scores {last}, {worse}{p}"
    )
