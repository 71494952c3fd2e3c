"""Fingerprints of a run at each stage, as hashes in run.json: two runs of one identity diverge at the first
different one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from evsys_record.hashing import digest
from evsys_record.run_record import RunRecord

__all__ = ["STAGES", "first_difference", "order_of", "stages_of"]

STAGES: Mapping[str, str] = {
    "data": "the rows",
    "batches": "the order of the batches",
    "first_loss": "the loss of the first step: the initial weights, or how it is computed",
    "losses": "the losses after the first step",
    "weights": "the weights in the end",
}
"""The stages in their order, and what differs where it begins there."""

_OF_ANY_LENGTH = ("data", "first_loss")
"""The stages that runs of different length share: a listener, which is not part of an identity, may end a run early."""

MOST_ROWS = 256
"""Rows that represent the order of all."""


def stages_of(record: RunRecord, fingerprint: str) -> dict[str, str | int | None]:
    """The hash of each stage of a trained run, None where there is nothing to hash; and its number of `steps`.

    Args:
        record: the run's.
        fingerprint: of its rows.

    Raises:
        StoreError: the record can't be read.
    """
    batches = [line["batch_id"] for line in record.read_journal() if line["event"] == "done"]
    losses = [line["values"]["loss"] for line in record.read_metrics() if "loss" in line["values"]]
    saved = record.checkpoints.latest(record.attempts)
    return {
        "steps": len(batches),
        "data": fingerprint,
        "batches": digest(batches) if batches else None,
        "first_loss": digest(losses[0]) if losses else None,
        "losses": digest(losses) if losses else None,
        "weights": digest(saved.hashes) if saved else None,
    }


def first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first difference between two runs, in words; None if all hashes that both have are equal."""
    lengths = {stages.get("steps") for stages in (one, other)} - {None}
    for stage, words in STAGES.items():
        if len(lengths) > 1 and stage not in _OF_ANY_LENGTH:
            continue
        if None not in (one.get(stage), other.get(stage)) and one[stage] != other[stage]:
            return words
    return None


def order_of(record: RunRecord, rows: int) -> dict[str, Any] | None:
    """The order in which a run took its first rows: how many, `of` how many there are, and its hash.

    None where the algorithm doesn't say which rows are in a batch.
    """
    batches: list[Sequence[str]] = []
    for line in record.read_journal():
        if line["event"] == "intent":
            batches.append(line["row_ids"])
        if sum(map(len, batches)) >= MOST_ROWS:
            break
    taken = list(chain.from_iterable(batches))[:MOST_ROWS]
    return {"rows": len(taken), "of": rows, "digest": digest(taken)} if taken else None
