import asyncio
from types import SimpleNamespace

import pytest

from evsys.errors import PluginContractError
from evsys.types import HarborTask, Message, Rollout, RolloutLimits, SamplingParams, Turn
from evsys_runtime.training.rollout_groups import learnable, nothing_learnable, out_of_turns, run_groups


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


# --- what can be learnt from one -----------------------------------------------------------------------------------------


def rollout(*turns, **fields):
    said = tuple(
        Turn(
            message=Message(role="assistant", content="x"),
            prompt_tokens=prompt,
            tokens=tokens,
            logprobs=[-0.5] * len(tokens),
        )
        for prompt, tokens in turns
    )
    return Rollout(task_id="t", sample_index=0, turns=said, **fields)


def test_a_rollout_gives_the_sequences_of_its_turns_whatever_it_was_worth():
    rows = learnable(rollout(([1, 2], [3]), ([1, 2, 3, 4], [5, 6])), 6)
    assert [row.tokens.tolist() for row in rows] == [[1, 2, 3, 4, 5, 6]]
    rows = learnable(rollout(([1, 2], [3]), ([1, 9, 9], [5])), None)
    assert [row.tokens.tolist() for row in rows] == [[1, 2, 3], [1, 9, 9, 5]]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (rollout(([1], [2]), error="boom"), "error"),
        (rollout(), "no_turns"),
        (rollout(([1], [])), "no_tokens"),
        (rollout(([1, 2], [3]), ([1, 2, 3, 4], [5, 6, 7])), "too_long"),
    ],
)
def test_one_that_teaches_nothing_says_why_in_a_word(found, reason):
    assert learnable(found, 6) == reason


def test_a_batch_of_which_nothing_is_left_tells_what_became_of_it():
    one, other = rollout(error="boom"), rollout(([1], [2]))
    error = nothing_learnable([one, other], {"error": 1, "too_long": 1}, 4)
    assert error.message == "none of the 2 rollouts of step 5 can be learnt from: 1 error, 1 too_long"
    assert error.hint == "boom"
    silent = [rollout(), rollout()]
    assert nothing_learnable(silent, {"no_turns": 2}, 0).hint == "the agent never called the model"


def test_agents_that_were_cut_short_are_told_of():
    assert out_of_turns([rollout()], 3) is None
    cut = rollout(metadata={"refused_calls": 1})
    assert "agents asked for more than 3 answers" in out_of_turns([rollout(), cut], 3)
