"""A rollout engine runs tasks: for each task and sample it lets the policy's agent act, has the result judged, and yields the
rollout as soon as it is done. Crashed ones are yielded with their `error`.

It keeps the limits: how many run at once, and for how long. `direct` is the standard one, [`harbor`](../harbor.md) has
sandboxes; [evaluation](../evaluation.md#engines) describes their use.

## In an experiment file

```yaml
metadata:
  benchmark: {name: val, engine: in_turn}
```
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from zlib import crc32

import attrs

from evsys import register_rollout_engine
from evsys.types import AgentContext, HarborTask, Policy, Rollout, RolloutLimits


@register_rollout_engine("in_turn")
class InTurn:
    """One rollout after another."""

    async def run(
        self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits
    ) -> AsyncIterator[Rollout]:
        for task in tasks:
            for index in range(policy.num_samples):
                rollout = await self._one(task, policy, limits, index)
                if rollout.error is None:  # a crash has no score; it isn't a bad answer
                    rollout = attrs.evolve(rollout, score=await policy.verify(task, rollout))
                yield rollout

    async def _one(self, task: HarborTask, policy: Policy, limits: RolloutLimits, index: int) -> Rollout:
        ctx = AgentContext(
            sampling=policy.sampling,
            seed=crc32(f"{policy.sampling.seed}/{task.task_id}/{index}".encode()),
            sample_index=index,
            max_turns=limits.max_turns,
            system_prompt=policy.system_prompt,
            policy_version=policy.version,
        )
        try:
            async with asyncio.timeout(limits.timeout_seconds):
                ended = await policy.agent.run(task, policy.model, task.tools, ctx)
        except Exception as exc:
            timed_out = isinstance(exc, TimeoutError)
            return Rollout(task_id=task.task_id, sample_index=index, error=repr(exc), timed_out=timed_out)
        if isinstance(ended, Rollout):
            return ended
        return Rollout(task_id=task.task_id, sample_index=index, output=ended)
