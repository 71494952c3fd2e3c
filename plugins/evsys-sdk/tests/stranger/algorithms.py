"""Algorithms: `sft` with batches and params of one's own, one on the toolkit, and one on the contract alone."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, assert_type

import attrs
import numpy as np

from evsys_sdk import (
    DPO,
    RL,
    SFT,
    AdamParams,
    BaseAlgorithm,
    ChatMessagesRow,
    Datum,
    HarborTask,
    LoraSpec,
    RunContext,
    RunResult,
    TrainingBatch,
    TrainingLoop,
    TrainingParams,
    option,
    register_algorithm,
)


def focal_loss(data: Sequence[Datum], logprobs: Sequence[Any], *, gamma: float) -> Any:
    terms: list[Any] = [
        np.sum(datum.loss_inputs["weights"] * (1 - np.exp(values)) ** gamma * -values)
        for datum, values in zip(data, logprobs, strict=True)
    ]
    return sum(terms)


@register_algorithm("focal")
class Focal(SFT):
    """`sft` with another loss and one more param."""

    @attrs.frozen(kw_only=True)
    class Config(SFT.Config):
        """Params of `sft`, and one more."""

        gamma: float = option(2.0, "How much less sure tokens count.", ge=0)

    config: Config

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        batch = await super().build_batch(step_idx)
        assert_type(batch, TrainingBatch)
        assert_type(self.config.gamma, float)
        assert_type(self.config.batch_size, int | None)
        assert_type(self.config.train_on, str)
        batch.loss_fn = partial(focal_loss, gamma=self.config.gamma)
        return batch


@register_algorithm("in_order")
class InOrder(RL):
    """`rl` on the tasks in the order of their file."""

    def task_at(self, position: int) -> HarborTask:
        task: HarborTask = self.ctx.data[position % len(self.ctx.data)]
        assert_type(super().task_at(position), HarborTask)
        return task


@register_algorithm("pairs_backwards")
class PairsBackwards(DPO):
    """`dpo` on the pairs of a batch in turn."""

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        batch = await super().build_batch(step_idx)
        batch.data = batch.data[::-1]
        return batch


@register_algorithm("echo")
class Echo(BaseAlgorithm):
    """Batches from scratch, in the toolkit's loop."""

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        rows = [self.ctx.data[number] for number in self.take_rows(step_idx)]
        return TrainingBatch(
            data=[self.datum(row) for row in rows], row_ids=tuple(row.row_id for row in rows)
        )

    def datum(self, row: ChatMessagesRow) -> Datum:
        text = " ".join(message.content for message in row.messages)
        tokens = np.array(self.ctx.clients.policy.tokenizer.encode(text), dtype=np.int64)
        return Datum(
            tokens=tokens[:-1],
            loss_inputs={"target_tokens": tokens[1:], "weights": np.ones(len(tokens) - 1) / len(tokens)},
        )

    async def train(self, ctx: RunContext) -> RunResult:
        assert_type(self.config, Any)
        ctx.log.info("echo.started", rows=len(ctx.data))
        return await TrainingLoop(self).run(ctx)


@register_algorithm("one_step")
class OneStep:
    """The contract alone: no toolkit, no loop."""

    Config: ClassVar[type[TrainingParams]] = TrainingParams

    def __init__(self, **fields: Any) -> None:
        self.params = TrainingParams(**fields)

    def lora(self) -> LoraSpec:
        return LoraSpec(rank=self.params.lora_rank, alpha=self.params.lora_alpha)

    async def train(self, ctx: RunContext) -> RunResult:
        client = ctx.clients.policy
        tokens = np.array(client.tokenizer.encode("abc"), dtype=np.int64)
        datum = Datum(
            tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:], "weights": np.ones(len(tokens) - 1)}
        )
        passed = client.forward_backward([datum], "cross_entropy")
        stepped = client.optim_step(AdamParams(learning_rate=1e-3))
        forward, optimised = await passed, await stepped
        assert_type(forward.loss, float | None)
        assert_type(optimised.grad_norm, float | None)
        metrics: Mapping[str, float] = {"loss": forward.loss or 0.0}
        return RunResult(status="completed", steps=1, metrics=metrics)
