"""An address for each rollout, asked over HTTP as an agent that knows nothing else would."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
from merging import RENDERER, Splitting, sampled_in, split

from evsys.errors import BackendError, RolloutError
from evsys.types import HarborTask, Message, Rollout, SamplingParams
from evsys_runtime.evaluation.recording import RecordingModel, finish_rollout
from evsys_runtime.rendering.policy_client import PolicyClient
from evsys_runtime.serving.rollouts import RolloutEndpoints
from evsys_runtime.serving.routes import Bounds
from evsys_runtime.training.trajectories import trajectories

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
TASK = HarborTask(task_id="t", instruction="hi")


class Asker:
    """An agent that has an address, and what is recorded of it."""

    def __init__(self, endpoint, recording, session):
        self.endpoint, self.recording, self.session = endpoint, recording, session

    async def post(self, body, base_url=None):
        url = f"{base_url or self.endpoint.base_url}/chat/completions"
        headers = {"Authorization": f"Bearer {self.endpoint.api_key}"}
        body = {"model": self.endpoint.model, **body}
        async with self.session.post(url, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def ask(self, messages, **body):
        status, answer = await self.post({"messages": messages, **body})
        assert status == 200, answer
        return answer["choices"][0]["message"]

    def rollout(self) -> Rollout:
        return finish_rollout(TASK, 0, self.recording, "done", version=4)


@asynccontextmanager
async def endpoints(**options):
    made = RolloutEndpoints(model="m", tokenizer=RENDERER.tokenizer, **options)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def asking(sampler, made, sampling=None, most=None):
    recording = RecordingModel(
        PolicyClient(sampler, RENDERER), sampling or SamplingParams(max_tokens=200, seed=7), most=most
    )
    async with made.open(recording) as endpoint, aiohttp.ClientSession() as session:
        yield Asker(endpoint, recording, session)


def with_agent(sampler, work, *, sampling=None, most=None, **options):
    async def main():
        async with (
            asyncio.timeout(20),
            endpoints(**options) as made,
            asking(sampler, made, sampling, most) as asker,
        ):
            return await work(asker)

    return asyncio.run(main())


def user(text):
    return {"role": "user", "content": text}


async def conversation(asker, *texts, **body):
    messages = []
    for text in texts:
        messages.append(user(text))
        messages.append(await asker.ask(messages, **body))
    return asker.rollout()


def test_what_an_agent_asks_becomes_turns_by_the_samplers_own_tokens():
    sampler = Splitting("hello ab", "caf\u00e9!", "abc", version=4)
    rollout = with_agent(sampler, lambda asker: conversation(asker, "hi", "go on", "and on"))
    [one] = trajectories(rollout)
    assert sampled_in([one]) == [(tokens, logprobs) for _, tokens, logprobs, _ in sampler.log]
    assert one.tokens.tolist() == sampler.log[-1][0] + sampler.log[-1][1]
    assert set(one.versions.tolist()) == {-1, 4}
    assert [message.content for message in rollout.messages] == [
        *("hi", "hello ab", "go on", "caf\u00e9!", "and on", "abc")
    ]
    assert rollout.usage.completion_tokens == sum(len(tokens) for _, tokens, *_ in sampler.log)


def test_what_a_call_costs_is_what_the_model_costs():
    class Free(Splitting):
        free = True

    costs = [
        with_agent(sampler, lambda asker: conversation(asker, "hi")).usage.cost_usd
        for sampler in (Free("ab"), Splitting("ab"))
    ]
    assert costs == [0.0, None]


def test_a_character_that_is_cut_between_turns_is_trained_as_it_was_sampled():
    sampler = Splitting([*b"caf", 0xC3], [0xA9, *split("!"), 257])
    rollout = with_agent(sampler, lambda asker: conversation(asker, "hi", "go on"))
    [one] = trajectories(rollout)
    assert sampled_in([one]) == [(tokens, logprobs) for _, tokens, logprobs, _ in sampler.log]
    assert rollout.truncated


def test_how_is_sampled_is_the_runs_to_say():
    sampler = Splitting("ab")
    own = SamplingParams(max_tokens=30, temperature=1.0, top_p=1.0, seed=7)
    asked = {"temperature": 0.2, "top_p": 0.5, "top_k": 3, "max_tokens": 900, "stop": ["x"]}

    async def work(asker):
        await asker.ask([user("hi")], **asked)
        await asker.ask([user("hi")], max_tokens=5)
        await asker.ask([user("hi")])

    with_agent(sampler, work, sampling=own)
    params = [entry[3] for entry in sampler.log]
    assert [(p.temperature, p.top_p, p.top_k) for p in params] == [(1.0, 1.0, None)] * 3
    assert [p.max_tokens for p in params] == [30, 5, 30]
    assert params[0].stop == ("x",)


def test_a_rollout_that_has_had_its_answers_is_refused_more_in_the_words_of_the_other_door():
    async def work(asker):
        messages = [user("hi")]
        for _ in range(2):
            messages += [await asker.ask(messages), user("go on")]
        status, answer = await asker.post({"messages": messages})
        assert (status, answer["error"]["code"]) == (400, "max_turns_exceeded")
        with pytest.raises(RolloutError) as refused:
            await asker.recording.generate([Message(role="user", content="hi")], SamplingParams())
        assert answer["error"]["message"] == refused.value.message
        return asker.rollout(), finish_rollout(
            TASK, 0, asker.recording, None, failure=RuntimeError("the program ended with 1")
        )

    rollout, failed = with_agent(Splitting("ab", "abc"), work, most=2)
    assert (len(rollout.turns), rollout.truncated, rollout.metadata) == (2, True, {"refused_calls": 2})
    assert (failed.error, failed.truncated, failed.output) == (None, True, "abc")


def test_each_call_has_a_seed_of_its_own_and_one_that_a_client_chose_is_no_other_rollouts():
    sampler = Splitting("ab")

    async def work(made):
        for seed in (7, 8):
            async with asking(sampler, made, SamplingParams(max_tokens=9, seed=seed)) as asker:
                await asker.ask([user("hi")])
                await asker.ask([user("hi")])
                await asker.ask([user("hi")], seed=42)
                await asker.ask([user("hi")], seed=42)

    async def main():
        async with endpoints() as made:
            await work(made)

    asyncio.run(main())
    seeds = [entry[3].seed for entry in sampler.log]
    assert seeds[0] == 7
    assert (seeds[2], seeds[6]) == (seeds[3], seeds[7])
    assert len(set(seeds)) == 6


def test_rollouts_side_by_side_are_recorded_apart():
    samplers = [Splitting("ab"), Splitting("hello")]

    async def main():
        async with endpoints() as made, asking(samplers[0], made) as one, asking(samplers[1], made) as other:
            assert one.endpoint.base_url != other.endpoint.base_url
            assert (
                one.endpoint.base_url.rpartition("/rollouts/")[0]
                == other.endpoint.base_url.rpartition("/rollouts/")[0]
            )
            await asyncio.gather(*(asker.ask([user("hi")]) for asker in (one, other) for _ in range(5)))
            return one.rollout(), other.rollout()

    one, other = asyncio.run(main())
    assert [turn.message.content for turn in one.turns] == ["ab"] * 5
    assert [turn.message.content for turn in other.turns] == ["hello"] * 5


def test_tools_are_called_and_answered():
    call = '<tool_call>{"name": "look", "arguments": {"at": "abc"}}</tool_call>'
    sampler = Splitting(call, "hello")

    async def work(asker):
        asked = [user("hi")]
        answer = await asker.ask(asked, tools=[TOOL])
        [made] = answer["tool_calls"]
        result = {"role": "tool", "tool_call_id": made["id"], "content": "nothing there"}
        await asker.ask([*asked, answer, result], tools=[TOOL])
        return asker.rollout()

    [one] = trajectories(with_agent(sampler, work))
    assert sampled_in([one]) == [(tokens, logprobs) for _, tokens, logprobs, _ in sampler.log]


@pytest.mark.parametrize(
    "said",
    [
        '<tool_call>{"name": "look", "arguments": </tool_call>',
        '<tool_call>{"name": "look", "arguments": 3}</tool_call>',
        "<tool_call>look at abc</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
    ],
)
def test_a_call_that_is_no_json_stays_text_and_is_trained_as_it_was_sampled(said):
    sampler = Splitting(said, "abc")

    async def work(asker):
        answer = await asker.ask([user("hi")], tools=[TOOL])
        assert answer["content"] == said
        assert "tool_calls" not in answer
        told = user("that was not a tool call")
        await asker.ask([user("hi"), answer, told], tools=[TOOL])
        return asker.rollout()

    [one] = trajectories(with_agent(sampler, work))
    assert sampled_in([one]) == [(tokens, logprobs) for _, tokens, logprobs, _ in sampler.log]


def test_arguments_that_an_agent_sends_back_as_no_json_are_a_conversation_like_any_other():
    async def work(asker):
        function = {"name": "look", "arguments": '{"at": '}
        calls = [{"id": "c", "type": "function", "function": function}]
        sent = {"role": "assistant", "content": None, "tool_calls": calls}
        return await asker.ask([user("hi"), sent, {"role": "tool", "tool_call_id": "c", "content": "?"}])

    assert with_agent(Splitting("ab"), work)["content"] == "ab"


# --- refusals -------------------------------------------------------------------------------------------------------


def test_a_model_that_is_not_there_is_404_and_says_which_is():
    async def work(asker):
        found = await asker.post({"model": "gpt-9", "messages": [user("hi")]})
        async with asker.session.get(f"{asker.endpoint.base_url}/models") as response:
            names = [model["id"] for model in (await response.json())["data"]]
        return found, names, asker.rollout()

    (status, body), names, rollout = with_agent(Splitting("ab"), work)
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "served: m" in body["error"]["message"]
    assert names == ["m"]
    assert rollout.turns == ()


def test_a_rollout_that_is_not_there_or_over_is_404():
    sampler = Splitting("ab")

    async def main():
        async with endpoints() as made, asking(sampler, made) as other:
            async with asking(sampler, made) as asker:
                await asker.ask([user("hi")])
                gone = asker.endpoint.base_url
            unknown = other.endpoint.base_url.replace("/rollouts/", "/rollouts/x")
            return [await other.post({"messages": [user("hi")]}, url) for url in (gone, unknown)]

    for status, body in asyncio.run(main()):
        assert (status, body["error"]["code"]) == (404, "rollout_not_found")
    assert len(sampler.log) == 1


def test_a_conversation_longer_than_the_context_is_refused_by_the_code_that_agents_know_and_marks_the_rollout():
    async def work(asker):
        found = await asker.post({"messages": [user("x" * 100)]})
        return found, asker.rollout()

    sampler = Splitting("ab")
    (status, body), rollout = with_agent(sampler, work, context_length=60)
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    assert rollout.truncated
    assert sampler.log == []


def test_an_answer_is_no_longer_than_the_context_has_room_for():
    sampler = Splitting("x" * 100)

    async def work(asker):
        await asker.ask([user("hi")])
        return asker.rollout()

    rollout = with_agent(sampler, work, context_length=60)
    [turn] = rollout.turns
    assert len(turn.prompt_tokens) + len(turn.tokens) == 60
    assert rollout.truncated


def test_a_sampler_that_knows_its_context_is_believed():
    class Short(Splitting):
        async def sample(self, prompt, params, n=1):
            raise BackendError("too long", limit=10)

    async def work(asker):
        found = await asker.post({"messages": [user("hi")]})
        return found, asker.rollout()

    (status, body), rollout = with_agent(Short("ab"), work)
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    assert rollout.truncated


def test_a_body_that_is_too_long_or_none_at_all_is_refused():
    async def work(asker):
        long = await asker.post({"messages": [user("x" * 5000)]})
        url = f"{asker.endpoint.base_url}/chat/completions"
        async with asker.session.post(url, data=b"{") as response:
            return long, (response.status, await response.json())

    (long, _), (none, body) = with_agent(Splitting("ab"), work, bounds=Bounds(body_bytes=2000))
    assert (long, none, body["error"]["code"]) == (413, 400, "invalid_json")


class Holding(Splitting):
    """Answers when it is let."""

    def __init__(self, *answers):
        super().__init__(*answers)
        self.entered, self.let, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def sample(self, prompt, params, n=1):
        self.entered.set()
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await super().sample(prompt, params, n)


def test_an_agent_that_goes_away_leaves_nothing_being_sampled():
    async def main():
        sampler = Holding("ab")
        async with asyncio.timeout(20), endpoints() as made, asking(sampler, made) as asker:
            asked = asyncio.create_task(asker.ask([user("hi")]))
            await sampler.entered.wait()
            asked.cancel()
            await sampler.cancelled.wait()
            return asker.rollout()

    assert asyncio.run(main()).turns == ()


def test_a_rollout_that_ends_while_its_agent_still_waits_takes_no_more_turns():
    async def main():
        sampler = Holding("ab")
        async with asyncio.timeout(20), endpoints() as made, aiohttp.ClientSession() as session:
            recording = RecordingModel(PolicyClient(sampler, RENDERER), SamplingParams(seed=1))
            async with made.open(recording) as endpoint:
                asker = Asker(endpoint, recording, session)
                asked = asyncio.create_task(asker.post({"messages": [user("hi")]}))
                await sampler.entered.wait()
            return await asked, asker.rollout()

    (status, body), rollout = asyncio.run(main())
    assert (status, body["error"]["code"]) == (404, "rollout_not_found")
    assert rollout.turns == ()


def test_a_stream_is_recorded_like_any_other_answer():
    sampler = Splitting("hello ab")

    async def work(asker):
        url = f"{asker.endpoint.base_url}/chat/completions"
        body = {"model": "m", "messages": [user("hi")], "stream": True}
        async with asker.session.post(url, json=body) as response:
            lines = [line.decode() async for line in response.content if line.strip()]
        parts = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        said = "".join(p["choices"][0]["delta"].get("content") or "" for p in parts)
        return said, asker.rollout()

    said, rollout = with_agent(sampler, work)
    assert said == "hello ab"
    assert rollout.turns[0].tokens == sampler.log[0][1]


def test_the_server_starts_with_the_first_address_and_ends_with_the_run():
    async def main():
        made = RolloutEndpoints(model="m", tokenizer=RENDERER.tokenizer)
        await made.close()
        async with asking(Splitting("ab"), made) as asker:
            await asker.ask([user("hi")])
            assert asker.endpoint.env["OPENAI_BASE_URL"] == asker.endpoint.base_url
        await made.close()
        async with asking(Splitting("ab"), made) as again:
            await again.ask([user("hi")])
        await made.close()
        await made.close()
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(asker.endpoint.base_url)

    asyncio.run(main())
