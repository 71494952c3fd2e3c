"""The trained weights: an adapter over shared base weights, or a full copy of the model."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import attrs

from evsys_backend_local.engine.adam import Adam, AdamParams
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.lora import LoraGrads, LoraParams
from evsys_backend_local.engine.params import FlatParams
from evsys_backend_local.engine.weights import BaseWeights


@attrs.frozen(kw_only=True, eq=False)
class Snapshot:
    """Frozen weights to sample from.

    Attributes:
        weights: base weights (shared), or a copy when the whole model is trained.
        lora: copy of the adapter, or None.
        version: optimiser steps of the run behind it.
    """

    weights: BaseWeights
    lora: LoraParams | None
    version: int

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what was trained: equal digests mean equal bits."""
        return _digest(self.weights, self.lora)


def _digest(weights: BaseWeights, lora: LoraParams | None) -> str:
    params = weights.params if lora is None else lora.params
    return "sha256:" + hashlib.sha256(params.host).hexdigest()


class Trainable:
    """Parameters with their gradient and optimiser.

    Attributes:
        weights: base weights; the trained copy itself when ``lora`` is None.
        lora: the adapter, or None for full fine-tuning.
        grad: sum of the gradients since the last step, flat like ``params``.
        adam: optimiser state.
        version: optimiser steps of this run behind the weights; set when a run is restored. The optimiser may
            have done more, in a run that these weights come from.
        average: running mean of the parameters, flat like ``params``; None until someone asks for it.
    """

    def __init__(self, weights: BaseWeights, lora: LoraParams | None) -> None:
        self.weights = weights
        self.lora = lora
        self.grad: FlatParams = self.params.like()
        self.adam = Adam(self.params.flat)
        self.version = 0
        self.average: Array | None = None
        self._accumulators: list[LoraGrads | BaseWeights] = []

    @property
    def params(self) -> FlatParams:
        """The trained arrays, by name."""
        return self.weights.params if self.lora is None else self.lora.params

    @property
    def digest(self) -> str:
        """SHA-256 of the trained parameters."""
        return _digest(self.weights, self.lora)

    def accumulators(self, count: int) -> Sequence[LoraGrads | BaseWeights]:
        """``count`` zeroed gradient accumulators, one a worker, reused between calls."""
        while len(self._accumulators) < count:
            if self.lora is None:
                self._accumulators.append(self.weights.like(zero=True))
            else:
                self._accumulators.append(LoraGrads(self.lora))
        chosen = self._accumulators[:count]
        for accumulator in chosen:
            accumulator.params.flat[...] = 0
        return chosen

    def add_gradients(self, parts: Sequence[LoraGrads | BaseWeights]) -> None:
        """Add the workers' gradients, always in worker order."""
        for part in parts:
            self.grad.flat += part.params.flat

    def step(self, params: AdamParams) -> float:
        """Apply the summed gradient and clear it; returns its norm before clipping."""
        norm = self.adam.update(self.params.flat, self.grad.flat, params)
        self.grad.flat[...] = 0
        self.version += 1
        if self.lora is not None:
            self.lora.refresh()
        return norm

    def snapshot(self, flat: Array | None = None) -> Snapshot:
        """Frozen copy for sampling; with ``flat`` in place of the parameters where it is given."""
        if self.lora is not None:
            return Snapshot(weights=self.weights, lora=self.lora.copy(flat), version=self.version)
        return Snapshot(weights=self.weights.copy(flat), lora=None, version=self.version)

    def averaged(self, rate: float) -> Snapshot:
        """Move ``average`` by ``rate`` of the way to the parameters, and give a frozen copy of it.

        It begins as the parameters are at the first call. Of an adapter A and B are averaged, each by itself.
        """
        if self.average is None:
            self.average = self.params.xp.copy(self.params.flat)
        else:
            # The difference, so that the mean of weights that stay what they are is exactly those.
            way = self.params.flat - self.average
            way *= rate
            self.average += way
        return self.snapshot(self.average)

    def load_params(self, values: dict[str, Array], *, what: str) -> None:
        """Replace the trained parameters."""
        self.params.assign(values, what=what)
        if self.lora is not None:
            self.lora.refresh()
