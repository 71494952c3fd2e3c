"""Rollout engines with one fault each."""

import asyncio

import attrs

from evsys.types import NoScore, Score
from evsys_runtime.evaluation.recording import run_rollout
from evsys_std.engine import DirectEngine


class _Named(DirectEngine):
    """Called what its class is called."""

    def __init_subclass__(cls):
        cls.name = cls.__name__


class _Changing(_Named):
    async def run(self, tasks, policy, limits):
        found = [rollout async for rollout in DirectEngine().run(tasks, policy, limits)]
        for rollout in self.changed(found):
            yield rollout


class OneTwice(_Changing):
    def changed(self, rollouts):
        return [*rollouts[:-1], rollouts[0]] if len(rollouts) > 3 else rollouts


class MixesAnswers(_Changing):
    def changed(self, rollouts):
        outputs = [rollout.output for rollout in rollouts]
        return [
            attrs.evolve(r, output=output)
            for r, output in zip(rollouts, outputs[1:] + outputs[:1], strict=True)
        ]


class CrashIsZero(_Changing):
    def changed(self, rollouts):
        return [
            attrs.evolve(r, score=Score(value=0.0)) if isinstance(r.score, NoScore) else r for r in rollouts
        ]


class AllAtOnce(_Named):
    def run(self, tasks, policy, limits):
        return super().run(tasks, policy, attrs.evolve(limits, n_concurrent=1000))


class Patient(_Named):
    def run(self, tasks, policy, limits):
        return super().run(tasks, policy, attrs.evolve(limits, timeout_seconds=3600.0))


class LeavesThemRunning:
    async def run(self, tasks, policy, limits):
        slots = asyncio.Semaphore(limits.n_concurrent)

        async def one(task, i, sample):
            async with slots:
                seconds, turns = limits.timeout_seconds, limits.max_turns
                return await run_rollout(task, i, sample, policy, timeout_seconds=seconds, max_turns=turns)

        jobs = [(task, i, sample) for i, task in enumerate(tasks) for sample in range(policy.num_samples)]
        for running in [asyncio.create_task(one(*job)) for job in jobs]:
            yield await asyncio.shield(running)


class OneSeedForAll(_Named):
    def run(self, tasks, policy, limits):
        return super().run(tasks, attrs.evolve(policy, agent=_Seeded(policy.agent)), limits)


class _Seeded:
    def __init__(self, agent):
        self.agent = agent

    async def run(self, task, model, tools, ctx):
        return await self.agent.run(task, model, tools, attrs.evolve(ctx, seed=1))
