import asyncio

import pytest

from evsys.types import AgentContext, Completion, HarborTask, Message, SamplingParams
from evsys_std.agents import ChatAgent
from evsys_std.environments import NullEnvironment


def said(role: str, content: str) -> Message:
    return Message(role=role, content=content)


class Numbered:
    """Answers "answer 1", "answer 2", ... and keeps the prompts."""

    def __init__(self) -> None:
        self.prompts: list[list[Message]] = []
        self.tools: list[object] = []

    async def generate(self, messages, sampling, *, n=1, tools=()):
        self.prompts.append(list(messages))
        self.tools.append(tools)
        return [Completion(message=said("assistant", f"answer {len(self.prompts)}"), finish_reason="stop")]


def run(agent: ChatAgent, instruction, *, max_turns: int = 1, system_prompt: str | None = None, tools=()):
    model = Numbered()
    ctx = AgentContext(sampling=SamplingParams(), seed=1, max_turns=max_turns, system_prompt=system_prompt)
    task = HarborTask(task_id="t", instruction=instruction)
    return asyncio.run(agent.run(task, model, tools, ctx)), model


def test_a_text_is_one_user_message():
    rollout, model = run(ChatAgent(), "hi", tools=("schema",))
    assert rollout.output == "answer 1"
    assert model.prompts == [[said("user", "hi")]]
    assert model.tools == [("schema",)]
    assert rollout.messages == (said("user", "hi"), said("assistant", "answer 1"))


def test_the_entrys_system_prompt_wins_over_the_agents():
    for own, entry, expected in (("a", None, "a"), (None, "b", "b"), ("a", "b", "b"), ("a", "", "")):
        _, model = run(ChatAgent(system_prompt=own), "hi", system_prompt=entry)
        assert model.prompts[0][0] == said("system", expected)


def test_two_system_messages_are_refused():
    own = (said("system", "x"), said("user", "hi"))
    with pytest.raises(ValueError, match="task 't' has a system message"):
        run(ChatAgent(system_prompt="a"), own)
    _, model = run(ChatAgent(), own)
    assert model.prompts == [list(own)]


SCRIPT = (
    said("system", "s"),
    said("user", "one"),
    said("assistant", "given"),
    said("user", "two"),
    said("user", "three"),
)


def test_with_one_turn_all_messages_are_one_prompt():
    rollout, model = run(ChatAgent(), SCRIPT)
    assert model.prompts == [list(SCRIPT)]
    assert not rollout.truncated


@pytest.mark.parametrize(("own", "limit"), [(5, 1), (None, 5)])
def test_with_more_turns_each_open_user_message_is_answered_in_its_turn(own, limit):
    rollout, model = run(ChatAgent(max_turns=own), SCRIPT, max_turns=limit)
    first = list(SCRIPT[:4])
    assert model.prompts == [first, [*first, said("assistant", "answer 1"), SCRIPT[4]]]
    assert rollout.output == "answer 2"
    assert rollout.messages == (
        *first,
        said("assistant", "answer 1"),
        SCRIPT[4],
        said("assistant", "answer 2"),
    )
    assert not rollout.truncated


def test_a_script_longer_than_the_turns_is_cut_and_says_so():
    rollout, model = run(ChatAgent(max_turns=2), tuple(said("user", str(i)) for i in range(4)))
    assert len(model.prompts) == 2
    assert rollout.truncated


def test_max_turns_below_one_is_refused():
    with pytest.raises(ValueError, match="max_turns"):
        ChatAgent.Config(max_turns=0)


def test_the_null_environment_starts_and_stops_as_often_as_asked():
    async def scenario():
        environment = NullEnvironment()
        await environment.start()
        await environment.stop()
        await environment.stop()

    asyncio.run(scenario())
