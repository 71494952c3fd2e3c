"""A model without a model, as authors of agents and judges use it."""

import asyncio

import pytest

from evsys.types import Completion, Message, SamplingParams, ToolCall, Usage
from evsys_conformance import FakeModel, tool_call

SAMPLING = SamplingParams(max_tokens=8, temperature=0.5)


def user(text):
    return [Message(role="user", content=text)]


def ask(model, text="hello", **options):
    return asyncio.run(model.generate(user(text), SAMPLING, **options))


def test_it_gives_the_same_answer_to_all():
    model = FakeModel("yes")
    assert [completion.message.content for completion in ask(model, n=3)] == ["yes"] * 3
    assert ask(model)[0].message == Message(role="assistant", content="yes")


def test_each_call_takes_the_next_answer_of_a_list():
    model = FakeModel(["one", "two"])
    assert [ask(model)[0].message.content for _ in range(2)] == ["one", "two"]
    with pytest.raises(AssertionError, match="has 2 answers and was asked again"):
        ask(model)


def test_answers_may_depend_on_the_conversation():
    model = FakeModel(lambda messages: messages[-1].content.upper())
    assert ask(model, "abc")[0].message.content == "ABC"


def test_a_tool_call_is_an_answer():
    (completion,) = ask(FakeModel(tool_call("look_up", {"word": "四"}, id="call-1")))
    assert completion.finish_reason == "tool_calls"
    assert completion.message.tool_calls == (ToolCall(name="look_up", arguments={"word": "四"}, id="call-1"),)
    assert completion.usage.completion_tokens > 0


def test_a_call_that_is_no_json_stays_a_text():
    (completion,) = ask(FakeModel(tool_call("look_up", "{oops")))
    assert completion.message.tool_calls[0].arguments == "{oops"


def test_a_whole_completion_comes_as_it_is():
    said = Completion(message=Message(role="assistant", content="cut of"), finish_reason="length")
    assert ask(FakeModel(said)) == [said]


def test_an_exception_is_raised_and_counted_as_a_call():
    model = FakeModel([ConnectionError("away"), "back"])
    with pytest.raises(ConnectionError, match="away"):
        ask(model)
    assert ask(model)[0].message.content == "back"
    assert len(model.calls) == 2
    assert model.running == 0


def test_it_remembers_what_it_was_asked():
    model = FakeModel("yes")
    ask(model, "is it?", n=2, tools=[{"name": "look_up"}])
    (call,) = model.calls
    assert (call.text, call.sampling, call.n, call.tools) == ("is it?", SAMPLING, 2, ({"name": "look_up"},))


def test_usage_is_a_token_for_each_byte_and_adds_up():
    model = FakeModel("žluť")
    (completion,) = ask(model, "四")
    assert completion.usage == Usage(prompt_tokens=3, completion_tokens=6, cost_usd=0.0)
    assert completion.tokens == list("žluť".encode())
    assert len(completion.logprobs) == len(completion.tokens)
    ask(model, "abcd", n=2)
    assert model.usage == Usage(prompt_tokens=3 + 4 * 2, completion_tokens=6 * 3, cost_usd=0.0)


def test_calls_that_are_held_wait_until_they_are_released_the_oldest_first():
    async def main():
        model = FakeModel(["one", "two", "three"], held=True)
        calls = [asyncio.create_task(model.generate(user(str(i)), SAMPLING)) for i in range(3)]
        await asyncio.sleep(0)
        assert (model.running, model.most_running) == (3, 3)
        model.release(1)
        assert (await calls[0])[0].message.content == "one"
        assert [call.done() for call in calls] == [True, False, False]
        model.release()
        assert [(await call)[0].message.content for call in calls[1:]] == ["two", "three"]
        assert model.running == 0

    asyncio.run(main())


def test_a_held_call_can_be_cancelled():
    async def main():
        model = FakeModel(held=True)
        call = asyncio.create_task(model.generate(user("hello"), SAMPLING))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert model.running == 0
        late = asyncio.create_task(model.generate(user("again"), SAMPLING))
        await asyncio.sleep(0)
        model.release(1)
        assert (await late)[0].message.content == "an answer"

    asyncio.run(main())


def test_latency_decides_which_call_is_answered_first():
    async def main():
        model = FakeModel(
            lambda messages: messages[-1].content, latency=lambda call: 0.02 * (call.text == "slow")
        )
        order = []

        async def one(text):
            order.append((await model.generate(user(text), SAMPLING))[0].message.content)

        await asyncio.gather(one("slow"), one("fast"))
        return order

    assert asyncio.run(main()) == ["fast", "slow"]


def test_answers_of_a_list_belong_to_the_calls_in_the_order_of_asking_whenever_they_are_answered():
    async def main():
        model = FakeModel(["first", "second"], latency=lambda call: 0.02 * (call.text == "a"))
        asked = [model.generate(user(text), SAMPLING) for text in ("a", "b")]
        return [found[0].message.content for found in await asyncio.gather(*asked)]

    assert asyncio.run(main()) == ["first", "second"]
