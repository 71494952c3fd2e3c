"""One batch through the model: packing, workers, the loss in between, and the way back."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from evsys_backend_local.engine.abort import Abort
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.estimate import activation_bytes
from evsys_backend_local.engine.head import Head
from evsys_backend_local.engine.limits import ContextTooLongError, InvalidInputError
from evsys_backend_local.engine.lora import LoraGrads, LoraParams
from evsys_backend_local.engine.memory import require_memory
from evsys_backend_local.engine.model import Forward
from evsys_backend_local.engine.packing import IntArray, Pack, pack_sequences
from evsys_backend_local.engine.panels import ModelPanels
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.trainable import Snapshot, Trainable
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.engine.workers import WorkerPool
from evsys_backend_local.engine.workspace import Workspace

#: Activations of a batch whose loss needs all logprobs at once are kept up to this many bytes, else computed again.
KEEP_ACTIVATIONS_BYTES = 768 << 20


def _integers(values: ArrayLike) -> IntArray:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"token ids must be integers, got {array.dtype}")
    return array.astype(np.int64, copy=False)


@attrs.frozen(kw_only=True, eq=False)
class Example:
    """One training sequence.

    Attributes:
        tokens: ``[N]`` inputs.
        targets: ``[N]`` or ``[N, K]``; entry i is predicted after ``tokens[i]``.
        mask: ``[N]`` bool, where a loss is; None means everywhere.
    """

    tokens: IntArray = attrs.field(converter=_integers)
    targets: IntArray = attrs.field(converter=_integers)
    mask: NDArray[np.bool_] | None = None

    def check(self, index: int, shape: ModelShape) -> None:
        """Raise :class:`InvalidInputError` that says what is wrong with example ``index``."""
        n = len(self.tokens)
        where = f"example {index}"
        if self.tokens.ndim != 1 or self.targets.ndim not in (1, 2) or len(self.targets) != n:
            raise InvalidInputError(
                f"{where}: tokens {self.tokens.shape} and targets {self.targets.shape} do not fit"
            )
        if self.mask is not None and self.mask.shape != (n,):
            raise InvalidInputError(f"{where}: mask has shape {self.mask.shape}, expected ({n},)")
        if n > shape.max_context:
            raise ContextTooLongError(
                f"{where} has {n} tokens, but the model's context here is {shape.max_context}",
                hint="shorten or drop the row; `evsys models check` shows what limits the context",
                tokens=n,
                limit=shape.max_context,
            )
        for name, ids in (("tokens", self.tokens), ("targets", self.targets)):
            if ids.size and (ids.min() < 0 or ids.max() >= shape.vocab):
                raise InvalidInputError(
                    f"{where}: {name} hold ids outside 0..{shape.vocab - 1}; is the tokenizer right?"
                )


#: ``loss(indices, logprobs) -> (value, gradients, metrics)``: ``indices`` name the examples, ``logprobs`` and the
#: gradients d(value)/d(logprob) have one array per example in the shape of its targets. Where the mask is False
#: the logprob is 0 and the gradient is ignored.
Loss = Callable[[Sequence[int], list[Array]], tuple[float, Sequence[Array], Mapping[str, float]]]


@attrs.frozen(kw_only=True)
class BatchResult:
    """``value`` and ``metrics`` are sums over the calls of the loss; ``rows`` counts what was computed."""

    value: float
    logprobs: list[Array]
    metrics: dict[str, float]
    rows: int
    tokens: int


@attrs.define
class _Part:
    """One pack with the places of its losses."""

    pack: Pack
    positions: list[IntArray]
    rows: IntArray
    place: IntArray
    targets: IntArray


def _trained_positions(example: Example) -> IntArray:
    return np.arange(len(example.tokens)) if example.mask is None else np.flatnonzero(example.mask)


class Batch:
    """Examples packed for a model.

    Args:
        shape: the model's sizes.
        examples: the data; those without a trained position take part in nothing.
        pool: the workers.
        max_rows: rows of a pack.
        block_rows: query rows of an attention block.
        share: reuse common prefixes.
        panels: the base model's matrices in panels, if they are.
    """

    def __init__(
        self,
        shape: ModelShape,
        examples: Sequence[Example],
        pool: WorkerPool,
        *,
        max_rows: int,
        block_rows: int,
        share: bool = True,
        panels: ModelPanels | None = None,
    ) -> None:
        for index, example in enumerate(examples):
            example.check(index, shape)
        self.shape = shape
        self.examples = list(examples)
        self.pool = pool
        self.max_rows = max_rows
        self.panels = panels
        self.dtype = pool.workspaces[0].dtype
        self.xp = pool.workspaces[0].xp
        positions = [_trained_positions(example) for example in examples]
        self.active = [index for index, where in enumerate(positions) if len(where)]
        # What follows the last trained position influences nothing.
        inputs = [self.examples[index].tokens[: positions[index][-1] + 1] for index in self.active]
        packs = pack_sequences(
            inputs,
            max_rows=max_rows,
            streams=pool.count,
            block_rows=block_rows,
            dtype=self.dtype,
            window=shape.window,
            share=share,
        )
        self.parts = [self._part(pack, positions) for pack in packs]
        costs = [self._cost(part) for part in self.parts]
        self.hands = [hand for hand in pool.deal(costs) if hand]
        self.logprobs: list[Array] = [np.zeros(example.targets.shape, self.dtype) for example in examples]
        #: Tokens and logprobs, ``[N, k]`` each, by example; only after a ``forward`` that wanted them.
        self.likeliest: dict[int, tuple[IntArray, Array]] = {}
        self._wanted = 0
        self._loss_lock = threading.Lock()

    @property
    def rows(self) -> int:
        """Rows computed, after sharing."""
        return sum(part.pack.rows for part in self.parts)

    @property
    def tokens(self) -> int:
        """Tokens of the examples, before sharing."""
        return sum(len(example.tokens) for example in self.examples)

    def _part(self, pack: Pack, positions: Sequence[IntArray]) -> _Part:
        pack = attrs.evolve(pack, members=tuple(self.active[member] for member in pack.members))
        where = [positions[index] for index in pack.members]
        flat_rows = np.concatenate([rows[at] for rows, at in zip(pack.rows_of, where, strict=True)])
        rows, place = np.unique(flat_rows, return_inverse=True)
        wanted = [
            self.examples[index].targets[at].reshape(len(at), -1)
            for index, at in zip(pack.members, where, strict=True)
        ]
        width = max(part.shape[1] for part in wanted)
        targets = np.zeros((len(flat_rows), width), np.int64)
        start = 0
        for part in wanted:
            targets[start : start + len(part), : part.shape[1]] = part
            start += len(part)
        return _Part(pack, where, rows, place.reshape(-1), targets)

    def _cost(self, part: _Part) -> float:
        """Multiplications of one pass, roughly."""
        shape = self.shape
        scores = sum((block.end - block.start) * block.keys for block in part.pack.blocks)
        linear = part.pack.rows * shape.layers * shape.layer_linear_parameters
        return float(
            linear + len(part.rows) * shape.vocab * shape.dim + 12 * scores * shape.layers * shape.q_width
        )

    def _keep_all(self) -> bool:
        """Whether the activations of all packs fit into the budget."""
        shape = self.shape
        size = self.rows * shape.activation_width * shape.layers * self.dtype.itemsize
        size += sum(len(part.rows) for part in self.parts) * shape.vocab * self.dtype.itemsize
        return size <= KEEP_ACTIVATIONS_BYTES

    def forward(
        self,
        model: Trainable | Snapshot,
        rope: tuple[Array, Array],
        abort: Abort | None = None,
        *,
        likeliest: int = 0,
    ) -> None:
        """Fill ``logprobs``, and ``likeliest`` with that many tokens of each position if any are wanted."""
        abort = abort or Abort()
        self._wanted = likeliest

        def task(hand: Sequence[int]) -> Callable[[Workspace], None]:
            def run(ws: Workspace) -> None:
                for index in hand:
                    abort.check()
                    self._run_part(self.parts[index], model.weights, model.lora, rope, ws, keep=False)

            return run

        self.pool.run([task(hand) for hand in self.hands], abort)

    def forward_backward(
        self,
        model: Trainable,
        rope: tuple[Array, Array],
        loss: Loss,
        *,
        separable: bool,
        abort: Abort | None = None,
    ) -> tuple[float, dict[str, float]]:
        """Add the gradient of ``loss`` to ``model.grad``; returns its value and metrics.

        Args:
            model: what is trained.
            rope: rotary tables.
            loss: see :data:`Loss`.
            separable: the loss is a sum over examples, so it may be called for some of them at a time (never twice
                at once). Without, it is called once, with all.
            abort: ends it early, without a gradient.
        """
        abort = abort or Abort()
        self._require_memory()
        grads = model.accumulators(len(self.hands))
        if separable:
            value, metrics = self._separable(model, rope, loss, grads, abort)
        else:
            value, metrics = self._joint(model, rope, loss, grads, abort)
        model.add_gradients(grads)
        return value, metrics

    def _require_memory(self) -> None:
        """Refuse sequences so long that the system would end the process instead.

        Raises:
            NotEnoughMemoryError: what the workers need at once is more than is free.
        """
        largest = [max(self.parts[index].pack.rows for index in hand) for hand in self.hands]
        if not largest or max(largest) <= self.max_rows:
            return
        itemsize = self.dtype.itemsize
        needed = sum(activation_bytes(self.shape, rows, itemsize=itemsize) for rows in largest)
        held = sum(workspace.nbytes for workspace in self.pool.workspaces)
        require_memory(
            needed - held,
            f"the activations of {len(largest)} sequences of up to {max(largest)} tokens",
            hint="lower max_length, or the workers in backend.params: each keeps a sequence in memory",
            free=self.xp.free_bytes,
        )

    def _separable(
        self,
        model: Trainable,
        rope: tuple[Array, Array],
        loss: Loss,
        grads: Sequence[LoraGrads | BaseWeights],
        abort: Abort,
    ) -> tuple[float, dict[str, float]]:
        outcomes: list[tuple[float, Mapping[str, float]]] = [(0.0, {})] * len(self.parts)

        def task(hand: Sequence[int], target: LoraGrads | BaseWeights) -> Callable[[Workspace], None]:
            def run(ws: Workspace) -> None:
                for index in hand:
                    abort.check()
                    part = self.parts[index]
                    forward, head = self._run_part(part, model.weights, model.lora, rope, ws, keep=True)
                    with self._loss_lock:
                        value, gradients, metrics = self._call(loss, part.pack.members)
                    outcomes[index] = (value, metrics)
                    by_example = dict(zip(part.pack.members, gradients, strict=True))
                    self._run_back(part, forward, head, by_example, target)

            return run

        self.pool.run([task(hand, target) for hand, target in zip(self.hands, grads, strict=True)], abort)
        value = 0.0
        metrics: dict[str, float] = {}
        for part_value, part_metrics in outcomes:
            value += part_value
            for name, amount in part_metrics.items():
                metrics[name] = metrics.get(name, 0.0) + amount
        return value, metrics

    def _joint(
        self,
        model: Trainable,
        rope: tuple[Array, Array],
        loss: Loss,
        grads: Sequence[LoraGrads | BaseWeights],
        abort: Abort,
    ) -> tuple[float, dict[str, float]]:
        keep = self._keep_all()
        passes: dict[int, tuple[Forward, Head]] = {}

        def first(hand: Sequence[int]) -> Callable[[Workspace], None]:
            def run(ws: Workspace) -> None:
                for turn, index in enumerate(hand):
                    abort.check()
                    memory = ws.child(turn) if keep else ws
                    outcome = self._run_part(
                        self.parts[index], model.weights, model.lora, rope, memory, keep=keep
                    )
                    if keep:
                        passes[index] = outcome

            return run

        self.pool.run([first(hand) for hand in self.hands], abort)
        value, gradients, metrics = self._call(loss, range(len(self.examples)))

        def second(hand: Sequence[int], target: LoraGrads | BaseWeights) -> Callable[[Workspace], None]:
            def run(ws: Workspace) -> None:
                for index in hand:
                    abort.check()
                    part = self.parts[index]
                    outcome = passes.get(index)
                    if outcome is None:
                        outcome = self._run_part(part, model.weights, model.lora, rope, ws, keep=True)
                    self._run_back(part, *outcome, gradients, target)

            return run

        self.pool.run([second(hand, target) for hand, target in zip(self.hands, grads, strict=True)], abort)
        return value, dict(metrics)

    def _call(self, loss: Loss, indices: Sequence[int]) -> tuple[float, Sequence[Array], Mapping[str, float]]:
        value, gradients, metrics = loss(indices, [self.logprobs[index] for index in indices])
        if len(gradients) != len(indices):
            raise ValueError(f"the loss returned {len(gradients)} gradients for {len(indices)} examples")
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the loss is {value}; lower the learning rate, or look for zero or infinite weights in the batch"
            )
        for index, gradient in zip(indices, gradients, strict=True):
            if gradient.shape != self.logprobs[index].shape:
                expected = self.logprobs[index].shape
                raise ValueError(
                    f"the loss's gradient {index} has shape {gradient.shape}, expected {expected}"
                )
            if not np.isfinite(gradient).all():
                raise FloatingPointError(f"the loss's gradient for example {index} holds NaN or infinity")
        return float(value), gradients, metrics

    def _run_part(
        self,
        part: _Part,
        weights: BaseWeights,
        lora: LoraParams | None,
        rope: tuple[Array, Array],
        ws: Workspace,
        *,
        keep: bool,
    ) -> tuple[Forward, Head]:
        forward = Forward(weights, lora, part.pack, rope, ws, keep=keep, panels=self.panels)
        head = Head(weights, forward.run(), part.rows, place=part.place, targets=part.targets, ws=ws)
        logprobs = head.logprobs()
        start = 0
        for index, at in zip(part.pack.members, part.positions, strict=True):
            out = self.logprobs[index]
            own = logprobs[start : start + len(at)]
            out[at] = own[:, 0] if out.ndim == 1 else own[:, : out.shape[1]]
            start += len(at)
        if self._wanted:
            self._keep_likeliest(part, *head.likeliest(self._wanted))
        return forward, head

    def _keep_likeliest(self, part: _Part, tokens: IntArray, logprobs: Array) -> None:
        ends = np.cumsum([len(at) for at in part.positions])[:-1]
        split = zip(part.pack.members, np.split(tokens, ends), np.split(logprobs, ends), strict=True)
        for index, own, values in split:
            self.likeliest[index] = own, values

    def _run_back(
        self,
        part: _Part,
        forward: Forward,
        head: Head,
        gradients: Mapping[int, Array] | Sequence[Array],
        target: LoraGrads | BaseWeights,
    ) -> None:
        gathered = np.zeros(part.targets.shape, self.dtype)
        start = 0
        for index, at in zip(part.pack.members, part.positions, strict=True):
            own = gradients[index][at].reshape(len(at), -1)
            gathered[start : start + len(at), : own.shape[1]] = own
            start += len(at)
        full = target if isinstance(target, BaseWeights) else None
        lora = target if isinstance(target, LoraGrads) else None
        forward.backward(head.backward(gathered, full), lora, full)
