import asyncio
from pathlib import Path
from typing import Any

import pytest
from faulty_service import Faulty, completion, in_a_thread
from served_mock import mock_model

from evsys import Registry
from evsys.errors import BackendError, ConfigError
from evsys.types import Message, SamplingParams, ToolCall
from evsys_conformance import InferenceClientConformance
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.serving.models import FixedCatalogue
from evsys_runtime.serving.server import chat_server
from evsys_std.inference.openai_compatible import OpenAICompatible

ASK = (Message(role="user", content="hi"),)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def one(sampling: SamplingParams | None = None, messages: Any = ASK, **more: Any):
    async def work(client: OpenAICompatible) -> Any:
        return await client.generate(messages, sampling or SamplingParams(max_tokens=5), **more)

    return work


def test_only_what_isnt_neutral_is_sent(asked):
    service = Faulty()
    asked(service, one())
    assert service.bodies == [
        {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 1.0, "max_tokens": 5}
    ]


def test_how_to_sample_is_sent(asked):
    service = Faulty(completion(choices=completion()["choices"] * 2))
    sampling = SamplingParams(
        max_tokens=9, temperature=0.5, top_p=0.9, top_k=4, stop=("x",), seed=2**63 + 5, stop_token_ids=(7,)
    )
    asked(service, one(sampling, n=2, tools=(TOOL,)))
    [body] = service.bodies
    del body["messages"], body["model"]
    assert body == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "stop": ["x"],
        "seed": 5,
        "stop_token_ids": [7],
        "n": 2,
        "tools": [TOOL],
    }


def test_fields_that_a_service_refuses_are_renamed_left_out_and_added(asked):
    service = Faulty()
    params = {
        "max_tokens_field": "max_completion_tokens",
        "omit": ("temperature",),
        "extra": {"reasoning_effort": "low"},
    }
    asked(service, one(), **params)
    [body] = service.bodies
    assert (body["max_completion_tokens"], body["reasoning_effort"]) == (5, "low")
    assert "temperature" not in body
    assert "max_tokens" not in body


@pytest.mark.parametrize(
    ("content", "reasoning", "answer"),
    [("<think>9</think>4", "9", "4"), ("9\n</think>\n\n4", "9", "4"), ("<think>4", "4", "")],
)
def test_reasoning_that_a_service_leaves_in_the_content_is_separated(asked, content, reasoning, answer):
    said = {"role": "assistant", "content": content}
    ([found], _) = asked(Faulty(completion(choices=[{"message": said}])), one())
    assert (found.message.reasoning, found.message.content) == (reasoning, answer)


def test_calls_of_tools_come_back_and_go_with_the_conversation(asked):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "é"}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"}
    service = Faulty(completion(choices=[{"message": said, "finish_reason": "tool_calls"}]))
    ([found], _) = asked(service, one(tools=(TOOL,)))
    message = Message(
        role="assistant", reasoning="hm", tool_calls=(ToolCall(name="look", arguments={"at": "é"}, id="c1"),)
    )
    assert (found.message, found.finish_reason) == (message, "tool_calls")
    asked(service, one(messages=(*ASK, message, Message(role="tool", content="tree", tool_call_id="c1"))))
    sent = service.bodies[-1]["messages"]
    assert sent[1]["tool_calls"][0]["id"] == "c1"
    assert "reasoning_content" not in sent[1]
    assert sent[2] == {"role": "tool", "content": "tree", "tool_call_id": "c1"}


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "error"), (None, "stop"), ("eos", "stop")],
)
def test_how_an_answer_ended_is_told(asked, reason, expected):
    choice = {"message": {"role": "assistant", "content": "x"}, "finish_reason": reason}
    ([found], _) = asked(Faulty(completion(choices=[choice])), one())
    assert found.finish_reason == expected


def test_a_service_that_gives_one_answer_at_a_time_is_asked_until_there_are_enough(asked):
    service = Faulty(completion("a"), completion("b"), completion("c"))
    found, _ = asked(service, one(SamplingParams(max_tokens=5, seed=7), n=3))
    assert [completion.message.content for completion in found] == ["a", "b", "c"]
    assert [body["seed"] for body in service.bodies] == [7, 8, 9]


def test_usage_is_counted_once(asked):
    choices = completion()["choices"] * 2
    usage = {"prompt_tokens": 1000, "completion_tokens": 301, "prompt_tokens_details": {"cached_tokens": 400}}
    service = Faulty(completion(choices=choices, usage=usage))
    found, _ = asked(service, one(n=2))
    assert [(c.usage.prompt_tokens, c.usage.completion_tokens) for c in found] == [(1000, 151), (0, 150)]


def build(url: str, **params: Any) -> OpenAICompatible:
    registry = Registry()
    registry.register("inference_client", "openai_compatible_here", OpenAICompatible)
    return registry.build(
        "inference_client", "openai_compatible_here", {"model": "m", "base_url": url, **params}
    )


def costs(params: dict[str, Any], usage: dict[str, Any] | None) -> list[float | None]:
    async def main() -> list[float | None]:
        service = Faulty(completion(usage=usage))
        async with service.running() as url:
            found = await build(url, **params).generate(ASK, SamplingParams(max_tokens=5))
            return [c.usage.cost_usd for c in found]

    return asyncio.run(main())


USAGE = {"prompt_tokens": 1000, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 400}}


def test_cost_is_by_the_clients_own_price_first():
    price = {"prompt": 2.0, "completion": 8.0, "cached": 0.5}
    assert costs({"price": price}, USAGE) == [pytest.approx((600 * 2 + 400 * 0.5 + 300 * 8) / 1e6)]


def test_cost_is_by_the_projects_prices_and_unknown_without_one(tmp_path: Path):
    (tmp_path / "prices.toml").write_text("[models.known]\nprompt = 1\ncompletion = 1\n", encoding="utf-8")
    with use_scope(DataScope(project_root=tmp_path)):
        assert costs({"model": "known"}, USAGE) == [pytest.approx(1300 / 1e6)]
        assert costs({"model": "unheard-of"}, USAGE) == [None]


def test_a_price_that_nobody_vouches_for_is_warned_of(tmp_path: Path):
    (tmp_path / "prices.toml").write_text(
        "[models.known]\nprompt = 1\ncompletion = 1\n[models.old]\nprompt = 1\ncompletion = 1\n"
        "as_of = 2020-01-31\nsource = 'a page'\n",
        encoding="utf-8",
    )
    with use_scope(DataScope(project_root=tmp_path)):
        assert "unverified" in build("http://127.0.0.1:9/v1", model="known").warnings[0]
        assert "is of 2020-01-31" in build("http://127.0.0.1:9/v1", model="old").warnings[0]
    assert build("http://127.0.0.1:9/v1", price={"prompt": 1, "completion": 1}).warnings == ()


def test_answers_whose_price_is_not_known_are_counted():
    async def main(**params: Any) -> list[int]:
        choices = completion()["choices"] * 2
        async with Faulty(completion(choices=choices, usage=None)).running() as url:
            found = await build(url, **params).generate(ASK, SamplingParams(max_tokens=5), n=2)
            return [answer.usage.unpriced for answer in found]

    assert asyncio.run(main()) == [1, 1]
    assert asyncio.run(main(price={"prompt": 1, "completion": 1})) == [1, 1]


def test_a_service_that_tells_no_usage_has_no_cost():
    assert costs({"price": {"prompt": 2.0, "completion": 8.0}}, None) == [None]


def test_clients_of_one_service_share_its_limits():
    params = {"requests_per_minute": 9}
    first, second = (
        build("http://127.0.0.1:9/v1", **params),
        build("http://127.0.0.1:9/v1/", max_concurrent=3),
    )
    other = build("http://127.0.0.1:10/v1")
    assert first._limiter is second._limiter
    assert first._limiter is not other._limiter
    assert (second._limiter.limits.requests_per_minute, first._limiter.limits.concurrency) == (9, 3)


def test_no_more_calls_are_under_way_than_allowed(asked):
    running = most = 0

    class Counting(Faulty):
        async def answer(self, request: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            return await super().answer(request)

    async def work(client: OpenAICompatible) -> None:
        await asyncio.gather(*(client.generate(ASK, SamplingParams(max_tokens=5)) for _ in range(12)))

    service = Counting()
    asked(service, work, max_concurrent=3)
    assert (len(service.bodies), most) == (12, 3)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"base_url": "somewhere"}, "base_url 'somewhere' is not an address"),
        ({"base_url": "ftp://me:secret@x/v1"}, "base_url 'ftp://x/v1' is not an address"),
        ({"api_key_env": "NOT_SET_IN_THIS_TEST"}, "NOT_SET_IN_THIS_TEST, which api_key_env names, isn't set"),
        ({"extra": {"stream": True}}, "'stream' can't be given in extra"),
        ({"omit": ("messages",)}, "'messages' can't be given in omit"),
    ],
)
def test_params_that_cant_work_are_refused_before_anything_is_sent(params, told):
    with pytest.raises(ValueError, match=told):
        OpenAICompatible(**{"model": "m", "base_url": "http://127.0.0.1:9/v1", **params})


def test_all_that_is_wrong_is_told_where_the_experiment_file_has_it():
    params = {"model": "m", "base_url": "x", "omit": ["messages"]}
    registry = Registry()
    registry.register("inference_client", "here", OpenAICompatible)
    with pytest.raises(ConfigError, match=r"is not an address.*can't be given in omit") as caught:
        registry.build("inference_client", "here", params, path="$.metadata.benchmark.models[0].params")
    assert [problem.path for problem in caught.value.problems] == ["$.metadata.benchmark.models[0].params"]


def test_logprobs_of_prompts_cant_be_asked_for(asked):
    with pytest.raises(BackendError, match="can't be asked for"):
        asked(Faulty(), one(SamplingParams(prompt_logprobs=True)))


def test_token_ids_and_logprobs_of_unequal_length_are_refused(asked):
    choice = {**completion()["choices"][0], "token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1.0}]}}
    service = Faulty(completion(choices=[choice], prompt_token_ids=[1]))
    with pytest.raises(BackendError, match="2 token ids and 1 logprobs"):
        asked(service, one(), token_ids=True)
    with pytest.raises(BackendError, match="no token ids"):
        asked(Faulty(), one(), token_ids=True)


# --- against our own server ------------------------------------------------------------------------------------


def test_through_the_wire_the_model_says_the_same_with_the_same_tokens(tmp_path: Path):
    from evsys_runtime.rendering.policy_client import PolicyClient

    model = mock_model(tmp_path)
    sampling = SamplingParams(max_tokens=12, temperature=1.0, seed=4)

    async def both() -> list[Any]:
        async with chat_server(FixedCatalogue(model)) as url:
            far = await build(url, token_ids=True).generate(ASK, sampling, n=3)
        near = await PolicyClient(model.sampling_client, model.renderer).generate(ASK, sampling, n=3)
        return [far, near]

    far, near = asyncio.run(both())
    assert [list(c.tokens) for c in far] == [list(c.tokens) for c in near]
    assert [list(c.logprobs) for c in far] == [list(c.logprobs) for c in near]
    assert [list(c.prompt_tokens) for c in far] == [list(c.prompt_tokens) for c in near]
    assert [c.message for c in far] == [c.message for c in near]
    total = [sum(getattr(c.usage, name) for c in far) for name in ("prompt_tokens", "completion_tokens")]
    assert total == [
        sum(getattr(c.usage, name) for c in near) for name in ("prompt_tokens", "completion_tokens")
    ]


class TestConformance(InferenceClientConformance):
    """The whole suite, against our own server over the mock backend."""

    @pytest.fixture
    def plugin(self, tmp_path: Path):
        model = mock_model(tmp_path)
        with in_a_thread(lambda: chat_server(FixedCatalogue(model), texts=True)) as url:
            yield OpenAICompatible(model="m", base_url=url)

    @pytest.fixture
    def failing(self):
        from evsys_conformance.running import closed_address

        return OpenAICompatible(model="m", base_url=closed_address(), max_retries=1)

    @pytest.fixture
    def hanging(self):
        from evsys_conformance.running import silent_address

        with silent_address() as address:
            yield OpenAICompatible(model="m", base_url=address)
