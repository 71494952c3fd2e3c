import asyncio
from types import SimpleNamespace

import pytest

from evsys.errors import PluginContractError
from evsys.types import HarborTask, Rollout, RolloutLimits, SamplingParams
from evsys_runtime.training.rollout_groups import run_groups


def made(*order):
    """A run whose engine gives these samples in this order, as `(task_id, sample_index)`."""

    class Rollouts:
        closed = False

        async def collect(self, tasks, snapshot, num_samples, **options):
            try:
                for task_id, index in order:
                    yield Rollout(task_id=task_id, sample_index=index, output=f"{task_id}{index}")
            finally:
                Rollouts.closed = True

    return SimpleNamespace(rollouts=Rollouts())


def groups(ctx, *names, size=2, take=None):
    tasks = [HarborTask(task_id=name, instruction="x") for name in names]

    async def main():
        found = []
        stream = run_groups(
            ctx, tasks, size, snapshot=None, sampling=SamplingParams(), limits=RolloutLimits(), step=0
        )
        async for group in stream:
            found.append((group.task.task_id, group.place, [r.output for r in group.rollouts]))
            if len(found) == take:
                break
        await stream.aclose()
        return found

    return asyncio.run(main())


def test_a_group_comes_when_its_last_rollout_has_ended_with_its_samples_in_order():
    ctx = made(("a", 1), ("b", 0), ("b", 1), ("a", 0))
    assert groups(ctx, "a", "b") == [("b", 1, ["b0", "b1"]), ("a", 0, ["a0", "a1"])]


def test_a_task_that_is_there_twice_has_two_groups():
    ctx = made(("a", 0), ("a", 0), ("a", 1), ("a", 1))
    assert groups(ctx, "a", "a") == [("a", 0, ["a0", "a1"]), ("a", 1, ["a0", "a1"])]


def test_whoever_takes_no_more_ends_the_engine():
    ctx = made(("a", 0), ("a", 1), ("b", 0), ("b", 1))
    assert len(groups(ctx, "a", "b", take=1)) == 1
    assert ctx.rollouts.closed


@pytest.mark.parametrize(
    "order", [[("a", 0), ("a", 0)], [("a", 0), ("a", 7)], [("c", 0)], [("a", 0)], [], [("a", 0), ("a", -1)]]
)
def test_an_engine_that_gives_too_many_or_too_few_is_told_so(order):
    with pytest.raises(PluginContractError, match="once too often|lack rollouts"):
        groups(made(*order), "a")


def test_a_run_without_rollouts_says_so():
    with pytest.raises(PluginContractError, match=r"ctx\.rollouts is None"):
        groups(SimpleNamespace(rollouts=None), "a")
