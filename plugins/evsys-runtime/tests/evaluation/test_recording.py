import asyncio

import pytest

from evsys.errors import BackendError, RolloutError
from evsys.types import Message, NoScore, Policy, Rollout, SamplingParams, Score
from evsys_runtime.evaluation.agents import FunctionAgent
from evsys_runtime.evaluation.recording import RecordingModel, run_rollout
from evsys_runtime.evaluation.seeds import rollout_seed, turn_seed
from evsys_runtime.evaluation.verify import make_verify
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.rendering.policy_client import PolicyClient

RENDERER = ChatTemplateRenderer()


def user(text: str) -> Message:
    return Message(role="user", content=text)


@pytest.fixture
def act(registry, task, script):
    """Runs one rollout of an async function as the agent."""

    def run(agent, *, sampler=None, seed=7, timeout=5.0, training=False, max_turns=1, **fields) -> Rollout:
        policy = Policy(
            model=PolicyClient(sampler or script(), RENDERER),
            agent=FunctionAgent(agent),
            verify=make_verify(registry),
            sampling=SamplingParams(max_tokens=9, seed=seed),
            system_prompt=fields.pop("system_prompt", None),
            version=12,
            training=training,
        )
        work = run_rollout(task(**fields), 2, 1, policy, timeout_seconds=timeout, max_turns=max_turns)
        return asyncio.run(work)

    return run


# --- what is recorded -------------------------------------------------------------------------------------------


def test_any_async_function_gets_exact_token_turns(act, script):
    async def agent(task, model, tools, ctx):
        first = await model.generate([user("one")], ctx.sampling)
        second = await model.generate([user("one"), first[0].message, user("two")], ctx.sampling)
        return second[0].message.content

    rollout = act(agent, sampler=script(lambda text: f"{text}!"), expected="two!")
    assert rollout.score == Score(value=1.0)
    assert rollout.output == "two!"
    assert [turn.message.content for turn in rollout.turns] == ["one!", "two!"]
    encode = RENDERER.tokenizer.encode
    assert [turn.tokens for turn in rollout.turns] == [encode("one!<|im_end|>"), encode("two!<|im_end|>")]
    assert rollout.turns[0].prompt_tokens == RENDERER.render_prompt([user("one")])
    whole = [user("one"), Message(role="assistant", content="one!"), user("two")]
    assert rollout.turns[1].prompt_tokens == RENDERER.render_prompt(whole)
    assert rollout.turns[1].logprobs == [-1.0] * 5
    assert rollout.messages == (*whole, Message(role="assistant", content="two!"))
    assert (rollout.sample_index, rollout.policy_version) == (1, 12)
    assert rollout.usage.completion_tokens == 10
    assert rollout.usage.prompt_tokens == sum(len(turn.prompt_tokens) for turn in rollout.turns)
    assert rollout.usage.seconds > 0


def test_the_record_is_trusted_over_what_the_agent_says(act):
    async def agent(task, model, tools, ctx):
        await model.generate([user("one")], ctx.sampling)
        return Rollout(
            task_id="other", sample_index=9, output="yes", score=Score(value=1.0), metadata={"note": 1}
        )

    rollout = act(agent, expected="no")
    assert (rollout.task_id, rollout.sample_index) == ("t", 1)
    assert len(rollout.turns) == 1
    assert rollout.score == Score(value=0.0)
    assert rollout.metadata == {"note": 1}


def test_an_agent_with_a_model_of_its_own_may_bring_its_turns(act):
    from evsys.types import Turn, Usage

    async def agent(task, model, tools, ctx):
        turn = Turn(message=Message(role="assistant", content="yes"), tokens=[1], logprobs=[-2.0])
        return Rollout(
            task_id="t", sample_index=1, output="yes", turns=(turn,), usage=Usage(completion_tokens=1)
        )

    rollout = act(agent)
    assert [turn.tokens for turn in rollout.turns] == [[1]]
    assert rollout.usage.completion_tokens == 1
    assert rollout.score == Score(value=1.0)


def test_calls_made_at_once_are_recorded_in_the_order_of_the_calls(script):
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}

    class Slow(script):
        async def sample(self, prompt, params, n=1):
            result = await super().sample(prompt, params, n)
            await gates["b" if "b<" in self.tokenizer.decode(prompt) else "a"].wait()
            return result

    async def scenario():
        model = RecordingModel(PolicyClient(Slow(lambda text: text), RENDERER), SamplingParams(seed=1))
        calls = [asyncio.create_task(model.generate([user(text)], SamplingParams())) for text in "ab"]
        gates["b"].set()
        await calls[1]
        gates["a"].set()
        await calls[0]
        return [turn.message.content for turn in model.turns]

    assert asyncio.run(scenario()) == ["a", "b"]


def test_every_completion_of_a_call_is_a_turn(act):
    async def agent(task, model, tools, ctx):
        return (await model.generate([user("x")], ctx.sampling, n=3))[0].message.content

    assert len(act(agent).turns) == 3


def test_a_cut_answer_marks_the_rollout(act, script):
    from evsys.types import SampledSequence, SampleResult

    class Cut(script):
        async def sample(self, prompt, params, n=1):
            return SampleResult(
                sequences=[SampledSequence(tokens=[65], logprobs=[-1.0], finish_reason="length")]
            )

    async def agent(task, model, tools, ctx):
        return (await model.generate([user("x")], ctx.sampling))[0].message.content

    assert act(agent, sampler=Cut()).truncated
    assert not act(agent).truncated


def test_an_answer_that_its_service_withheld_has_no_score(act, script):
    from evsys.types import NoScore, SampledSequence, SampleResult

    class Withheld(script):
        async def sample(self, prompt, params, n=1):
            return SampleResult(
                sequences=[SampledSequence(tokens=[65], logprobs=[-1.0], finish_reason="error")]
            )

    async def agent(task, model, tools, ctx):
        return (await model.generate([user("x")], ctx.sampling))[0].message.content

    rollout = act(agent, sampler=Withheld())
    assert isinstance(rollout.score, NoScore)
    assert "content filter" in rollout.score.reason


# --- what binds an agent in training ----------------------------------------------------------------------------


async def asking_thrice(task, model, tools, ctx):
    for text in ("one", "two", "three"):
        answer = (await model.generate([user(text)], ctx.sampling))[0].message.content
    return f"{answer} at last"


def test_in_training_an_agent_gets_no_more_answers_than_max_turns_and_is_judged_by_the_last(act):
    rollout = act(asking_thrice, training=True, max_turns=2)
    assert (len(rollout.turns), rollout.truncated, rollout.error, rollout.output) == (2, True, None, "yes")
    assert rollout.score == Score(value=1.0)
    assert rollout.metadata == {"refused_calls": 1}


def test_an_agent_that_makes_something_of_the_refusal_is_judged_by_that_and_cut_short_all_the_same(act):
    told = []

    async def agent(task, model, tools, ctx):
        await model.generate([user("one")], ctx.sampling)
        try:
            await model.generate([user("two")], ctx.sampling)
        except RolloutError as refused:
            told.append(str(refused))
        return "my own"

    rollout = act(agent, training=True, expected="my own")
    assert "at most 1 answers of the model (max_turns)" in told[0]
    assert (rollout.truncated, rollout.score) == (True, Score(value=1.0))


def test_answers_are_counted_and_not_calls(act):
    async def agent(task, model, tools, ctx):
        return (await model.generate([user("x")], ctx.sampling, n=3))[0].message.content

    assert not act(agent, training=True, max_turns=3).truncated
    assert "at most 2 answers" in act(agent, training=True, max_turns=2).error


def test_a_call_that_failed_is_no_answer(act, script):
    class Once(script):
        failed = False

        async def sample(self, prompt, params, n=1):
            if not self.failed:
                self.failed = True
                raise OSError("gone for a moment")
            return await super().sample(prompt, params, n)

    async def agent(task, model, tools, ctx):
        with pytest.raises(BackendError):
            await model.generate([user("x")], ctx.sampling)
        return (await model.generate([user("x")], ctx.sampling))[0].message.content

    rollout = act(agent, sampler=Once(), training=True)
    assert (rollout.truncated, rollout.error, len(rollout.turns)) == (False, None, 1)


@pytest.mark.parametrize("training", [True, False])
def test_how_training_samples_is_not_the_agents_to_say_but_for_shorter_answers(act, script, training):
    sampler = script()

    async def agent(task, model, tools, ctx):
        asked = SamplingParams(max_tokens=900, temperature=0.2, top_p=0.5, top_k=3, stop=("x",))
        await model.generate([user("x")], asked)
        await model.generate([user("x")], SamplingParams(max_tokens=4))
        return "yes"

    act(agent, sampler=sampler, training=training, max_turns=2)
    first, second = (params for _, params in sampler.asked)
    own = (9, 1.0, 1.0, None) if training else (900, 0.2, 0.5, 3)
    assert (first.max_tokens, first.temperature, first.top_p, first.top_k) == own
    assert (first.stop, second.max_tokens) == (("x",), 4)


def test_an_agent_that_is_scored_asks_as_often_as_it_likes(act):
    rollout = act(asking_thrice, expected="yes at last")
    assert (len(rollout.turns), rollout.truncated, rollout.score) == (3, False, Score(value=1.0))


# --- seeds ------------------------------------------------------------------------------------------------------


def test_each_call_of_a_rollout_has_a_seed_of_its_own(act, script):
    async def agent(task, model, tools, ctx):
        assert ctx.sampling.seed == ctx.seed
        for _ in range(3):
            await model.generate([user("x")], ctx.sampling)
        await model.generate([user("x")], SamplingParams())
        await model.generate([user("x")], SamplingParams(seed=5))
        return "yes"

    sampler = script()
    act(agent, sampler=sampler)
    own = rollout_seed(7, 2, 1)
    assert [params.seed for _, params in sampler.asked] == [
        own,
        turn_seed(own, 1),
        turn_seed(own, 2),
        turn_seed(own, 3),
        5,
    ]


def test_seeds_of_rollouts_differ_and_depend_on_their_place_alone():
    seeds = {
        rollout_seed(base, task, sample) for base in range(3) for task in range(20) for sample in range(4)
    }
    assert len(seeds) == 240
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert rollout_seed(1, 23, 4) != rollout_seed(12, 3, 4)
    assert turn_seed(5, 0) == 5


# --- failures ---------------------------------------------------------------------------------------------------


def test_an_agent_that_crashes_after_it_answered_has_no_score(act):
    async def agent(task, model, tools, ctx):
        await model.generate([user("x")], ctx.sampling)
        raise RuntimeError("lost my way")

    rollout = act(agent)
    assert rollout.error == "RuntimeError: lost my way"
    assert rollout.score == NoScore(reason="RuntimeError: lost my way", boundary="rollout")
    assert len(rollout.turns) == 1
    assert not rollout.timed_out


def test_a_model_that_fails_is_not_the_agents_fault(act, script):
    class Broken(script):
        async def sample(self, prompt, params, n=1):
            raise OSError("engine stopped")

    async def agent(task, model, tools, ctx):
        return (await model.generate([user("x")], ctx.sampling))[0].message.content

    rollout = act(agent, sampler=Broken())
    assert isinstance(rollout.score, NoScore)
    assert rollout.score.boundary == BackendError.boundary
    assert rollout.score.retryable
    assert "engine stopped" in rollout.error


def test_an_agent_that_hangs_after_it_answered_is_flagged_and_judged_by_what_it_said(act):
    async def agent(task, model, tools, ctx):
        await model.generate([user("x")], ctx.sampling)
        await asyncio.Event().wait()

    rollout = act(agent, timeout=0.05)
    assert rollout.timed_out
    assert rollout.output == "yes"
    assert rollout.score == Score(value=1.0)


def test_an_agent_that_hangs_before_any_answer_has_no_score(act):
    async def agent(task, model, tools, ctx):
        await asyncio.Event().wait()

    rollout = act(agent, timeout=0.01)
    assert rollout.timed_out
    assert rollout.score == NoScore(
        reason="out of time before the model answered", boundary="rollout", retryable=True
    )


def test_an_agents_own_timeout_is_a_crash_and_not_ours(act):
    async def agent(task, model, tools, ctx):
        raise TimeoutError("my own")

    rollout = act(agent)
    assert not rollout.timed_out
    assert rollout.error == "TimeoutError: my own"


@pytest.mark.parametrize("said", [None, 3, ["yes"]])
def test_an_agent_that_returns_something_else_has_no_score(act, said):
    async def agent(task, model, tools, ctx):
        return said

    rollout = act(agent)
    assert isinstance(rollout.score, NoScore)
    assert "not a string or a Rollout" in rollout.error


def test_an_agents_own_error_report_leaves_the_rollout_without_a_score(act):
    async def agent(task, model, tools, ctx):
        return Rollout(task_id="t", sample_index=0, output="yes", error="sandbox lost")

    assert act(agent).score == NoScore(reason="sandbox lost", boundary="rollout")


def test_a_custom_judge_that_raises_gives_no_score(task, script):
    async def agent(task, model, tools, ctx):
        return "yes"

    async def verify(task, rollout):
        raise KeyError("x")

    policy = Policy(model=PolicyClient(script(), RENDERER), agent=FunctionAgent(agent), verify=verify)
    rollout = asyncio.run(run_rollout(task(), 0, 0, policy, timeout_seconds=5))
    assert rollout.score == NoScore(reason="KeyError: 'x'", boundary="verifier")
    assert rollout.error is None


def test_an_agent_that_never_asks_the_model_is_judged_by_its_text(act):
    async def agent(task, model, tools, ctx):
        return "yes"

    rollout = act(agent)
    assert rollout.score == Score(value=1.0)
    assert rollout.turns == ()


def test_a_turn_says_which_weights_answered_where_they_changed_meanwhile(act, script):
    sampler = script(version=12)

    async def agent(task, model, tools, ctx):
        await model.generate([user("one")], ctx.sampling)
        sampler.version = 13
        return (await model.generate([user("two")], ctx.sampling))[0].message.content

    rollout = act(agent, sampler=sampler)
    assert rollout.policy_version == 12
    assert [turn.policy_version for turn in rollout.turns] == [None, 13]


class Short:
    """A sampling client whose context has room for two turns."""

    version = 0

    def __init__(self, inner, room):
        self.inner, self.room = inner, room

    async def sample(self, prompt, params, n=1):
        if len(prompt) > self.room:
            raise BackendError("the prompt is too long", tokens=len(prompt), limit=self.room)
        return await self.inner.sample(prompt, params, n)


async def talkative(task, model, tools, ctx):
    messages = []
    while True:
        messages.append(user("tell me more"))
        messages.append((await model.generate(messages, ctx.sampling))[0].message)


def test_a_conversation_that_grows_longer_than_the_context_is_judged_by_the_text_it_got_to(act, script):
    rollout = act(talkative, sampler=Short(script(), 100))
    assert len(rollout.turns) > 1
    assert (rollout.truncated, rollout.error, rollout.output) == (True, None, "yes")
    assert rollout.score == Score(value=1.0)


def test_a_first_prompt_longer_than_the_context_is_no_score_and_says_why(act, script):
    rollout = act(talkative, sampler=Short(script(), 5))
    assert (rollout.truncated, rollout.error) == (True, "the prompt is too long")
    assert isinstance(rollout.score, NoScore)
    assert rollout.score.boundary == "backend"


def test_a_client_with_ways_of_its_own_is_left_to_them(script):
    class Shouting(PolicyClient):
        async def generate(self, messages, sampling, *, n=1, tools=()):
            loud = [user(message.content.upper()) for message in messages]
            return await super().generate(loud, sampling, n=n, tools=tools)

    model = RecordingModel(Shouting(script(lambda text: text), RENDERER), SamplingParams(seed=1))
    [completion] = asyncio.run(model.generate([user("hi")], SamplingParams(seed=1)))
    assert completion.message.content == "HI"
