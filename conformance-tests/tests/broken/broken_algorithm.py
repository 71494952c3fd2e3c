"""Algorithms with one fault each, made with core and numpy alone."""

import asyncio
from itertools import count

import numpy as np

from evsys.types import AdamParams, Datum, RunResult

RUNS = count()


class Right:
    """Keeps the contract, four rows a step; the base of all that follow."""

    learning_rate = 0.02

    async def train(self, ctx):
        restored = ctx.checkpoints.restored
        self.begin(ctx, restored.step if restored else 0)
        while self.done < self.steps(ctx) and not self.stops(ctx):
            await self.step(ctx)
            self.done += 1
            ctx.record.done(self.done, f"batch-{self.done}")
            await asyncio.sleep(0)
        await ctx.checkpoints.save(self.done, ctx.clients.policy, {})
        return RunResult(status="completed", steps=self.done)

    def begin(self, ctx, step):
        self.done = step
        self.seed = ctx.seeds("data")

    def steps(self, ctx):
        return ctx.max_steps or 1000

    def stops(self, ctx):
        return ctx.stop_requested

    async def step(self, ctx):
        client = ctx.clients.policy
        rows = np.random.default_rng([self.seed, self.number()]).permutation(len(ctx.data))[:4]
        submitted = client.forward_backward(
            [datum(client.renderer, ctx.data[row]) for row in rows], "cross_entropy"
        )
        await client.optim_step(AdamParams(learning_rate=self.learning_rate))
        self.note(ctx, (await submitted).loss)

    def number(self):
        return self.done

    def note(self, ctx, loss):
        ctx.record.metrics(self.done, {"loss": loss})


def datum(renderer, row):
    ((tokens, weights),) = renderer.render_training(row.messages)
    inputs = {"target_tokens": np.asarray(tokens[1:]), "weights": np.asarray(weights[1:])}
    return Datum(tokens=np.asarray(tokens[:-1]), loss_inputs=inputs)


class LossIsNan(Right):
    def note(self, ctx, loss):
        ctx.record.metrics(self.done, {"loss": float("nan")})


class NeverTrains(Right):
    learning_rate = 0.0


class CountsOneMore(Right):
    async def train(self, ctx):
        result = await super().train(ctx)
        return RunResult(status=result.status, steps=result.steps + 1)


class OneStepLess(Right):
    def steps(self, ctx):
        return super().steps(ctx) - 1


class NeverStops(Right):
    def stops(self, ctx):
        return False


class ANewOrderEachRun(Right):
    def begin(self, ctx, step):
        super().begin(ctx, step)
        self.seed = next(RUNS)


class OneOrderForAll(Right):
    def begin(self, ctx, step):
        super().begin(ctx, step)
        self.seed = 0


class StartsAnew(Right):
    def begin(self, ctx, step):
        super().begin(ctx, step)
        self.batches = count()

    def number(self):
        return next(self.batches)


class HidesItsEnd(Right):
    async def train(self, ctx):
        try:
            return await super().train(ctx)
        except asyncio.CancelledError:
            return RunResult(status="completed")


class FailsInAStep(Right):
    async def step(self, ctx):
        # As an error of the training loop names the plugin.
        raise AttributeError(f"{ctx.config['algorithm']['kind']} has no such thing")


class TrainsOnNothing(Right):
    async def step(self, ctx):
        await asyncio.sleep(0)
