"""A model trained here: its backend, and what its requests do in their turn."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys.errors import BackendError
from evsys.types import AdamParams, Datum, LossFn, ModelSpec
from evsys_runtime import BUILTIN_LOSSES
from evsys_server.checkpoints import SCHEME, CheckpointStore, Kind, Saved
from evsys_server.engine import Engine, Prepared
from evsys_server.errors import RefusedError
from evsys_server.losses import loss_value, wire_loss, wire_metrics, with_weights
from evsys_server.promises import Answer, json_answer, proto_answer
from evsys_server.turns import Turns
from evsys_server.wire.training import ForwardBackward, Output, encode_output

if TYPE_CHECKING:
    from evsys.protocols import TrainingClient

__all__ = ["TrainedModel"]


@attrs.define(kw_only=True, eq=False)
class TrainedModel:
    """One training run.

    Attributes:
        id: `SESSION:train:NUMBER`, which the client knows beforehand.
        session_id: whose it is; it is unloaded when that ends.
        spec: what is trained, as the client asked for it or the checkpoint says.
        seed: of its first weights.
        turns: the order of its requests.
        user_metadata: the client's own words.
        step: optimiser steps behind its weights.
        last_request: seconds since 1970.
    """

    id: str
    session_id: str
    spec: ModelSpec
    seed: int
    engine: Engine
    store: CheckpointStore
    turns: Turns
    user_metadata: Mapping[str, str] = attrs.field(factory=dict)
    step: int = 0
    last_request: float = attrs.field(factory=time.time)
    _prepared: Prepared | None = None

    @property
    def client(self) -> TrainingClient:
        """The backend's client.

        Raises:
            RefusedError: the model isn't there.
        """
        if self._prepared is None:
            raise RefusedError(
                404, f"model {self.id} isn't loaded: its creation failed, or its session ended"
            )
        return self._prepared.client

    async def create(self) -> Answer:
        """Prepare fresh weights."""
        self._prepared = await self.engine.prepare(self.spec, self.seed)
        return json_answer({"type": "create_model", "model_id": self.id})

    async def load(self, path: str, *, with_optimizer: bool) -> Answer:
        """Continue from a checkpoint, as it was trained: what was here before is let go."""
        saved = self.store.find(path)
        if saved.spec.name != self.spec.name:
            raise RefusedError(
                400, f"{path} was trained from {saved.spec.name!r}, this model from {self.spec.name!r}"
            )
        restore = self.store.restorable(saved, with_optimizer=with_optimizer)
        prepared = await self.engine.prepare(saved.spec, saved.seed, restore)
        before, self._prepared = self._prepared, prepared
        self.spec, self.seed, self.step = saved.spec, saved.seed, saved.step
        if before is not None:
            await self.engine.release(before)
        return json_answer({"type": "load_weights", "path": path, "model_id": self.id})

    async def forward_backward(self, request: ForwardBackward) -> Answer:
        """A pass over a batch, with or without its gradient."""
        client, loss = self.client, wire_loss(request.loss_fn, request.loss_params)
        data = _check_data(request.data)
        if loss.name == "cross_entropy":
            data = with_weights(data)
        loss_fn = self._loss_fn(loss.name)
        async with self.engine.training:
            if request.forward_only:
                result = await client.forward(data)
                value, metrics = loss_value(loss, data, result.logprobs)
            else:
                result = await client.forward_backward(data, loss_fn, loss.params)
                if result.loss is None:
                    raise BackendError(f"the backend reported no value of the loss {loss.name!r}")
                value, metrics = float(result.loss), result.metrics
        # Where a loss has no term a backend may give NaN, which clients would multiply with their weights of 0.
        logprobs = [np.where(np.isnan(array), 0.0, array) for array in result.logprobs]
        return proto_answer(encode_output(Output(logprobs=logprobs, metrics=wire_metrics(value, metrics))))

    def _loss_fn(self, name: str) -> str | LossFn:
        """A loss as this backend takes it: by its name, or the function."""
        if f"loss_fns:{name}" in self.engine.capabilities:
            return name
        if "custom_loss" not in self.engine.capabilities:
            raise RefusedError(400, f"this backend doesn't compute the loss {name!r}")
        return BUILTIN_LOSSES[name]

    async def optim_step(self, params: AdamParams) -> Answer:
        """One optimiser step."""
        client = self.client
        async with self.engine.training:
            result = await client.optim_step(params)
        self.step += 1
        metrics = {"grad_norm": result.grad_norm, **result.metrics}
        finite = {
            key: float(value) for key, value in metrics.items() if value is not None and math.isfinite(value)
        }
        return json_answer({"metrics": finite})

    async def save(
        self,
        kind: Kind,
        name: str,
        *,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: Mapping[str, str] | None = None,
    ) -> Saved:
        """Write a checkpoint that clients may load.

        Raises:
            RefusedError: the name is taken or none, or the time to live isn't allowed.
            EvsysError: it can't be written.
        """
        path = self.store.address(self.id, kind, name)
        draft = attrs.evolve(
            self._draft(path, kind, name),
            expires=self.store.expiry(ttl_seconds),
            user_metadata=dict(user_metadata or {}),
        )
        return await self.store.save(draft, self.client, overwrite=overwrite)

    async def save_for_session(self, name: str) -> Saved:
        """Write what its session samples from, and no one else."""
        path = f"{SCHEME}{self.id}/sampler_weights/.{name}"  # a name that no client can choose
        draft = attrs.evolve(self._draft(path, "sampler_weights", name), session=self.session_id)
        return await self.store.save(draft, self.client, overwrite=True, durable=False)

    def _draft(self, path: str, kind: Kind, name: str) -> Saved:
        return Saved(
            path=path,
            run=self.id,
            kind=kind,
            name=name,
            spec=self.spec,
            seed=self.seed,
            step=self.step,
            state={},
            created=0.0,
        )

    async def unload(self, why: str) -> None:
        """Take no more requests and free the backend."""
        await self.turns.close(why)
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            await self.engine.release(prepared)


def _check_data(data: Sequence[Datum]) -> list[Datum]:
    if not data:
        raise RefusedError(400, "the request has no examples")
    for index, datum in enumerate(data):
        if "target_tokens" not in datum.loss_inputs:
            raise RefusedError(400, f"example {index} has no target_tokens")
    return list(data)
