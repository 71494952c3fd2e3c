"""Saving and restoring the mock's weights and optimiser, bit for bit."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from evsys.errors import BackendError
from evsys_backend_mock.adam import AdamState
from evsys_backend_mock.model import LowRankModel

__all__ = ["FILE", "Saved", "read_state", "write_state"]

FILE = "mock.npz"
_FORMAT = 1


@attrs.frozen(kw_only=True, eq=False)
class Saved:
    """The state that training continues from and that a file holds: the trained part of the model, the optimiser,
    and the running mean of the weights, if there is one.
    """

    model: LowRankModel
    optimizer: AdamState
    average: LowRankModel | None = None

    @classmethod
    def beginning(cls, model: LowRankModel) -> Saved:
        """Before the first step."""
        return cls(model=model, optimizer=AdamState.zero({"A": model.A, "B": model.B}))


def write_state(directory: Path, saved: Saved) -> dict[str, Any]:
    """Write `mock.npz` and say so, as JSON values."""
    model, optimizer, average = saved.model, saved.optimizer, saved.average
    weights = {"A": model.A, "B": model.B}
    arrays = {
        **{f"weight.{name}": matrix for name, matrix in weights.items()},
        **{f"first.{name}": matrix for name, matrix in optimizer.first.items()},
        **{f"second.{name}": matrix for name, matrix in optimizer.second.items()},
        "own": model.vocabulary.own,
        "counts": np.array([_FORMAT, optimizer.step, model.vocab_size]),
    }
    if average is not None:
        arrays |= {"average.A": average.A, "average.B": average.B}
    with (directory / FILE).open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
    return {"backend": "mock", "file": FILE}


def read_state(path: Path, fresh: LowRankModel) -> Saved:
    """Read a file into a model like `fresh`, which is untrained.

    Raises:
        BackendError: there is no such file, it is damaged, or it was saved with another rank or vocabulary.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        version, step, vocab_size = (int(x) for x in arrays["counts"])
        parts = {
            kind: {name: arrays[f"{kind}.{name}"] for name in ("A", "B")}
            for kind in ("weight", "first", "second", *(["average"] if "average.A" in arrays else []))
        }
        own = arrays["own"]
    except FileNotFoundError:
        raise BackendError(
            f"no checkpoint of the mock backend at {path}", hint="name the folder of one of its checkpoints"
        ) from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise BackendError(f"the checkpoint {path} can't be read: {error}") from error
    if version != _FORMAT:
        raise BackendError(f"{path} has format {version}, this version reads {_FORMAT}")
    for what, theirs, ours in (
        ("rank", parts["weight"]["A"].shape[1], fresh.A.shape[1]),
        ("vocabulary", vocab_size, fresh.vocab_size),
    ):
        if theirs != ours:
            raise BackendError(
                f"the checkpoint {path} was saved with a {what} of {theirs}, this model has {ours}",
                hint="train with the lora_rank and the model that it was saved with",
            )
    vocabulary = attrs.evolve(fresh.vocabulary, own=own)
    model = attrs.evolve(fresh, vocabulary=vocabulary, **parts["weight"])
    return Saved(
        model=model,
        optimizer=AdamState(step=step, first=parts["first"], second=parts["second"]),
        average=attrs.evolve(model, **parts["average"]) if "average" in parts else None,
    )
