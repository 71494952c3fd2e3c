"""Algorithms with one fault each: `sft`, changed."""

import asyncio
from itertools import count

import attrs

from evsys.types import RunResult, StopFlag
from evsys_algo_sft import SFT

RUNS = count()


class LossIsNan(SFT):
    def step_metrics(self, step_idx, batch, result):
        return {"loss": float("nan")}


class CountsOneMore(SFT):
    async def train(self, ctx):
        result = await super().train(ctx)
        return attrs.evolve(result, steps=result.steps + 1)


class OneStepLess(SFT):
    def total_steps(self):
        return super().total_steps() - 1


class NeverStops(SFT):
    async def train(self, ctx):
        return await super().train(attrs.evolve(ctx, stop=StopFlag()))


class ANewOrderEachRun(SFT):
    async def setup(self, ctx):
        run = next(RUNS)
        await super().setup(attrs.evolve(ctx, seeds=lambda purpose, index=0: 1000 * run + index))


class OneOrderForAll(SFT):
    async def setup(self, ctx):
        await super().setup(attrs.evolve(ctx, seeds=lambda purpose, index=0: index))


class StartsAnew(SFT):
    async def setup(self, ctx):
        await super().setup(ctx)
        self._batches = count()

    async def build_batch(self, step_idx):
        return await super().build_batch(next(self._batches))


class HidesItsEnd(SFT):
    async def train(self, ctx):
        try:
            return await super().train(ctx)
        except asyncio.CancelledError:
            return RunResult(status="completed")
