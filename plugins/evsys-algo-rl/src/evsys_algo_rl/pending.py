"""A batch made and not yet trained, as text for a checkpoint: one sampling may serve several steps."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys.errors import StoreError
from evsys.types import Datum, TrainingBatch
from evsys_algo_rl.batches import NO_SIGNAL, objective

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evsys.types import LossFn
    from evsys_algo_rl.params import RLParams

__all__ = ["pack", "unpack"]

type _Loss = tuple[str | LossFn, Mapping[str, Any]]


def pack(batch: TrainingBatch, params: RLParams) -> str:
    """Every number of a batch, bit by bit. Of its loss only which one it is: the params', the one of no signal, or another."""
    head = {
        "row_ids": list(batch.row_ids),
        "loss": _batch_words(batch, params),
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


def _batch_words(batch: TrainingBatch, params: RLParams) -> str:
    known = {"params": objective(params), "no_signal": (NO_SIGNAL, {})}
    return next(
        (name for name, loss in known.items() if _same((batch.loss_fn, batch.loss_params), loss)), "other"
    )


def _same(one: _Loss, other: _Loss) -> bool:
    """True for one loss with the same settings, which may be of any type."""
    settings = [json.dumps(dict(params), sort_keys=True, default=repr) for _, params in (one, other)]
    return one[0] == other[0] and settings[0] == settings[1]


def unpack(text: str, params: RLParams) -> TrainingBatch:
    """The batch given to `pack`.

    Raises:
        StoreError: its loss isn't that of the params.
    """
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
    if head["loss"] == "other":
        raise StoreError(
            "the checkpoint has batches that are sampled and not yet trained, with a loss that `batch_of` gave them and "
            "no checkpoint can keep",
            hint="set the loss in `build_batch` instead, which sees these batches too, or start a new run whose save_every "
            "is a multiple of substeps",
        )
    loss_fn, loss_params = (NO_SIGNAL, {}) if head["loss"] == "no_signal" else objective(params)
    return TrainingBatch(
        data=data,
        loss_fn=loss_fn,
        loss_params=loss_params,
        row_ids=tuple(head["row_ids"]),
        metrics=head["metrics"],
    )
