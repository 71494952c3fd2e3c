"""Requests that train: each gets a promise at once and runs in its turn."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs

from evsys.errors import PLUGIN_FAILURES
from evsys.types import AdamParams, LoraSpec, ModelSpec
from evsys_runtime.serving.off_loop import off_loop
from evsys_server import reading
from evsys_server.errors import RefusedError
from evsys_server.models import TrainedModel
from evsys_server.promises import Answer, Promise, json_answer
from evsys_server.service import Service
from evsys_server.sessions import SamplingSession, Session
from evsys_server.turns import Turns
from evsys_server.wire.training import read_address, read_request

__all__ = ["TrainingApi"]

ALPHA = "evsys.lora_alpha"
TARGETS = "evsys.target_modules"
"""Keys of a model's metadata that say what the wire has no field for."""

_MOST_RATE = 1e4
"""No optimiser setting means more than this; float32 overflows where such a number is squared a few times."""

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")

type _Make = Callable[[TrainedModel], Awaitable[Answer]]


@attrs.frozen(eq=False)
class TrainingApi:
    """The training side of the protocol."""

    service: Service

    def create_model(self, body: Mapping[str, Any]) -> Promise:
        """Make a model, its request 0."""
        session, number = self._slot(body)
        base = reading.name(body, "base_model")
        self.service.samplers.base_of(base)
        lora = reading.section(body, "lora_config")
        if reading.section(body, "optimizer_config").get("type", "adamw") != "adamw":
            raise RefusedError(400, "optimizer_config: only adamw is served here")
        metadata = reading.metadata(body)
        spec = ModelSpec(name=base, lora=_lora(lora, metadata))
        model = self._model(session, number, spec, reading.whole(lora, "seed", 0), metadata)
        return self._admit(session, model, model.create)

    def load_weights(self, body: Mapping[str, Any]) -> Promise:
        """Load a checkpoint: onto a model, or as a new one."""
        if body.get("session_id") is None:
            return self._in_turn(body, lambda: _load(body))
        session, number = self._slot(body)
        known = self.service.promises.find(f"{_model_id(session, number)}:0")
        if known is not None:
            return known
        path, load = reading.name(body, "path"), _load(body)
        saved = self.service.store.find(path)
        base = self.service.samplers.base_of(path)
        wanted = reading.optional_name(body, "base_model") or base
        if wanted != base:
            raise RefusedError(400, f"{path} was trained from {base!r}, not from {wanted!r}")
        model = self._model(session, number, saved.spec, saved.seed, reading.metadata(body))
        return self._admit(session, model, lambda: load(model))

    def get_info(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The description of a model."""
        model = self.service.model(reading.name(body, "model_id"))
        base = model.spec.name
        return {
            "type": "get_info",
            "model_id": model.id,
            "model_name": base,
            "model_data": {"arch": None, "model_name": base, "tokenizer_id": base},
            "is_lora": model.spec.lora.rank is not None,
            "lora_rank": model.spec.lora.rank,
        }

    def unload_model(self, body: Mapping[str, Any]) -> Promise:
        """Free a model before its session ends."""
        request_id = f"{reading.name(body, 'model_id')}:unload"
        known = self.service.promises.find(request_id)
        if known is not None:
            return known
        model = self.service.model(reading.name(body, "model_id"))

        async def unload() -> Answer:
            await self.service.unload(model, f"model {model.id} was unloaded")
            return json_answer({"type": "unload_model", "model_id": model.id})

        promise = self.service.promises.open(request_id, model.session_id, model_id=model.id)
        self.service.start(promise, unload())
        return promise

    def forward_backward(self, body: bytes) -> Promise:
        """A pass over a batch. Its faults are reported by its answer, so that the order of requests continues."""
        address = read_address(body)
        if address is None:
            raise RefusedError(400, "the body names no model and no sequence id")

        def make() -> _Make:
            request = read_request(body)
            return lambda model: model.forward_backward(request)

        return self._dispatch(*address, make, size=len(body))

    def refuse_forward_backward(self, beginning: bytes, error: RefusedError) -> None:
        """Let an unread, refused request take its place in the order all the same."""
        address = read_address(beginning)
        if address is not None:
            self._dispatch(*address, lambda: _raise(error))

    def optim_step(self, body: Mapping[str, Any]) -> Promise:
        """One optimiser step."""

        def make() -> _Make:
            params = _adam(body)
            return lambda model: model.optim_step(params)

        return self._in_turn(body, make)

    def save_weights(self, body: Mapping[str, Any]) -> Promise:
        """Save a model with its optimiser."""

        def make() -> _Make:
            name = reading.optional_name(body, "path") or f"step-{reading.whole(body, 'seq_id'):06d}"
            options = _save_options(body)
            overwrite = reading.flag(body, "overwrite")

            async def save(model: TrainedModel) -> Answer:
                saved = await model.save("weights", name, overwrite=overwrite, **options)
                return json_answer({"type": "save_weights", "path": saved.path})

            return save

        return self._in_turn(body, make)

    def save_weights_for_sampler(self, body: Mapping[str, Any]) -> Promise:
        """Save what can be sampled from; without a name it is for this session alone."""

        def make() -> _Make:
            kind = body.get("kind", "snapshot")
            if kind not in {"snapshot", "inflight"}:
                raise RefusedError(
                    400, f"kind: {reading.short_text(kind)} isn't served here; snapshot and inflight are"
                )
            name = reading.optional_name(body, "path")
            if name is None:
                number = reading.whole(body, "sampling_session_seq_id")
                return lambda model: self._live_sampler(model, number, inflight=kind == "inflight")
            if kind == "inflight":
                raise RefusedError(400, "path: inflight weights have no name")
            options = _save_options(body)

            async def save(model: TrainedModel) -> Answer:
                saved = await model.save("sampler_weights", name, **options)
                snapshot = await model.client.sampling_client()
                await self.service.samplers.add(saved.path, snapshot, model.id)
                return json_answer({"type": "save_weights_for_sampler", "path": saved.path})

            return save

        return self._in_turn(body, make)

    async def _live_sampler(self, model: TrainedModel, number: int, *, inflight: bool) -> Answer:
        """A sampler of the weights as they are. All inflight ones of a model share one address, whose weights the next replace."""
        session = self.service.sessions.active(model.session_id)
        saved = await model.save_for_session("inflight" if inflight else f"live-{number}")
        snapshot = await model.client.sampling_client()
        await self.service.samplers.add(saved.path, snapshot, model.id)
        sampling = SamplingSession(
            id=f"{session.id}:sample:{number}",
            session_id=session.id,
            number=number,
            source=saved.path,
            base_model=model.spec.name,
            unnamed=not inflight,
        )
        session.samplers[sampling.id] = sampling
        for surplus in session.surplus(self.service.limits.unnamed_samplers):
            del session.samplers[surplus.id]
            await self.service.samplers.drop(surplus.source)
            self.service.store.delete(surplus.source)
        return json_answer({"type": "save_weights_for_sampler", "sampling_session_id": sampling.id})

    def _slot(self, body: Mapping[str, Any]) -> tuple[Session, int]:
        session = self.service.sessions.active(reading.name(body, "session_id"))
        return session, reading.whole(body, "model_seq_id")

    def _model(
        self, session: Session, number: int, spec: ModelSpec, seed: int, metadata: Mapping[str, str]
    ) -> TrainedModel:
        limits = self.service.limits
        return TrainedModel(
            id=_model_id(session, number),
            session_id=session.id,
            spec=spec,
            seed=seed,
            engine=self.service.engine,
            store=self.service.store,
            turns=Turns(
                patience=limits.patience_seconds, most=limits.waiting, most_bytes=limits.waiting_bytes
            ),
            user_metadata=metadata,
        )

    def _admit(self, session: Session, model: TrainedModel, work: Callable[[], Awaitable[Answer]]) -> Promise:
        """Take a new model in, unless this is the same request again."""
        known = self.service.promises.find(f"{model.id}:0")
        if known is not None:
            return known
        self.service.room_for("model")
        if len(self.service.models) >= self.service.limits.models:
            raise RefusedError(
                400,
                f"{len(self.service.models)} models are trained here already; end a session with one first",
            )
        self.service.models[model.id] = model
        session.models.append(model.id)
        promise = self.service.promises.open(f"{model.id}:0", session.id, model_id=model.id)

        async def make() -> Answer:
            try:
                return await work()
            except PLUGIN_FAILURES:  # there is no such model, and it takes no other one's place
                self.service.models.pop(model.id, None)
                session.models.remove(model.id)
                raise

        model.turns.add(0, promise, make)
        return promise

    def _in_turn(self, body: Mapping[str, Any], make: Callable[[], _Make]) -> Promise:
        return self._dispatch(reading.name(body, "model_id"), reading.whole(body, "seq_id", low=1), make)

    def _dispatch(self, model_id: str, seq_id: int, make: Callable[[], _Make], *, size: int = 0) -> Promise:
        """Queue a request of a model, unless this is the same one again.

        Args:
            model_id: whose it is.
            seq_id: its place in the order.
            make: reads the rest in the request's turn, so that until then no more is held than came. Its exception is the answer: once it is known whose request it is and which, nothing keeps it from having
                its turn.
            size: bytes that it holds while it waits.
        """
        model = self.service.model(model_id)
        self.service.sessions.active(model.session_id)
        request_id = f"{model_id}:{seq_id}"
        known = self.service.promises.find(request_id)
        if known is not None:
            return known
        model.turns.check(seq_id, size)
        model.last_request = time.time()
        if seq_id != model.turns.next:
            self.service.room_for("training request")

        async def run() -> Answer:
            work = await off_loop(size, make)
            return await work(model)

        promise = self.service.promises.open(request_id, model.session_id, model_id=model_id)
        model.turns.add(seq_id, promise, run, size)
        return promise


def _model_id(session: Session, number: int) -> str:
    return f"{session.id}:train:{number}"


def _raise(error: Exception) -> _Make:
    raise error


def _load(body: Mapping[str, Any]) -> _Make:
    path, optimizer = reading.name(body, "path"), reading.flag(body, "optimizer")
    return lambda model: model.load(path, with_optimizer=optimizer)


def _lora(config: Mapping[str, Any], metadata: Mapping[str, str]) -> LoraSpec:
    targets: tuple[str, ...] = ("all-linear",)
    attention, mlp = reading.flag(config, "train_attn", True), reading.flag(config, "train_mlp", True)
    if TARGETS in metadata:
        targets = tuple(metadata[TARGETS].split(","))
    elif not (attention and mlp):
        targets = (_ATTENTION if attention else ()) + (_MLP if mlp else ())
    if not targets:
        raise RefusedError(
            400, "lora_config: train_attn or train_mlp must be true; nothing else is trained here"
        )
    try:
        alpha = float(metadata.get(ALPHA, LoraSpec().alpha))
    except ValueError:
        alpha = math.nan
    if not 0 < alpha <= _MOST_RATE:
        raise RefusedError(
            400,
            f"user_metadata: {ALPHA} must be a number above 0, at most {_MOST_RATE:g}, got {metadata[ALPHA]!r}",
        )
    return LoraSpec(rank=reading.whole(config, "rank", LoraSpec().rank, low=1), alpha=alpha, targets=targets)


def _adam(body: Mapping[str, Any]) -> AdamParams:
    if body.get("optimizer_params") is not None:
        raise RefusedError(400, "optimizer_params: only Adam is served here")
    given = reading.section(body, "adam_params")
    return AdamParams(
        learning_rate=reading.number(given, "learning_rate", 1e-4, low=0.0, high=_MOST_RATE),
        beta1=reading.number(given, "beta1", 0.9, low=0.0, below=1.0),
        beta2=reading.number(given, "beta2", 0.95, low=0.0, below=1.0),
        eps=reading.number(given, "eps", 1e-12, above=0.0, high=_MOST_RATE),
        weight_decay=reading.number(given, "weight_decay", 0.0, low=0.0, high=_MOST_RATE),
        grad_clip=max(0.0, reading.number(given, "grad_clip_norm", 0.0)),
    )


def _save_options(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ttl_seconds": reading.optional_whole(body, "ttl_seconds"),
        "user_metadata": reading.metadata(body),
    }
