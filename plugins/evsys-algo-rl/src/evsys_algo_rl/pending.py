"""A batch that is made and not yet trained, as text for a checkpoint: one sampling may serve several steps."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys.types import Datum, TrainingBatch
from evsys_algo_rl.batches import NO_SIGNAL, objective

if TYPE_CHECKING:
    from evsys_algo_rl.params import RLParams

__all__ = ["pack", "unpack"]


def pack(batch: TrainingBatch) -> str:
    """Every number of a batch, bit by bit."""
    head = {
        "row_ids": list(batch.row_ids),
        "no_signal": batch.loss_fn == NO_SIGNAL,
        "metrics": batch.metrics,
        "meta": [dict(datum.meta) for datum in batch.data],
        "inputs": [list(datum.loss_inputs) for datum in batch.data],
    }
    arrays: dict[str, Any] = {f"{i}/tokens": datum.tokens for i, datum in enumerate(batch.data)}
    for i, datum in enumerate(batch.data):
        arrays |= {f"{i}/{name}/input": array for name, array in datum.loss_inputs.items()}
    file = io.BytesIO()
    np.savez(file, head=np.array(json.dumps(head)), **arrays)
    return base64.b64encode(file.getvalue()).decode("ascii")


def unpack(text: str, params: RLParams) -> TrainingBatch:
    """The batch that `pack` was given."""
    with np.load(io.BytesIO(base64.b64decode(text))) as found:
        head = json.loads(str(found["head"]))
        data = [
            Datum(
                tokens=found[f"{i}/tokens"],
                loss_inputs={name: found[f"{i}/{name}/input"] for name in names},
                meta=meta,
            )
            for i, (meta, names) in enumerate(zip(head["meta"], head["inputs"], strict=True))
        ]
    loss_fn, loss_params = (NO_SIGNAL, {}) if head["no_signal"] else objective(params)
    return TrainingBatch(
        data=data,
        loss_fn=loss_fn,
        loss_params=loss_params,
        row_ids=tuple(head["row_ids"]),
        metrics=head["metrics"],
    )
