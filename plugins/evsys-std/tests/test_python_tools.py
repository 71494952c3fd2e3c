"""The `chat` agent with Python functions as tools."""

import asyncio
import sys
import textwrap

import pytest

from evsys import Registry
from evsys.errors import ConfigError, PluginError, PluginLoadError
from evsys.types import AgentContext, Completion, HarborTask, Message, SamplingParams, ToolCall
from evsys_std.agents import ChatAgent

SOURCE = '''
    def add(a: int, b: int = 1):
        """Adds two numbers."""
        return {"sum": a + b}

    async def look(place):
        return f"rain in {place}"

    def broken(x):
        raise KeyError("no such row")

    def leaves(x):
        raise SystemExit(3)

    number = 3
'''


@pytest.fixture(autouse=True)
def tool_module(tmp_path, monkeypatch):
    (tmp_path / "tools_of_mine.py").write_text(textwrap.dedent(SOURCE), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("tools_of_mine", None)


class Scripted:
    """Makes the calls that it is told to, one answer each, and then says `done`."""

    def __init__(self, *answers: tuple[ToolCall, ...] | str) -> None:
        self.answers = list(answers)
        self.prompts: list[list[Message]] = []
        self.tools: list[tuple[dict, ...]] = []

    async def generate(self, messages, sampling, *, n=1, tools=()):
        self.prompts.append(list(messages))
        self.tools.append(tools)
        answer = self.answers.pop(0) if self.answers else "done"
        message = (
            Message(role="assistant", content=answer)
            if isinstance(answer, str)
            else Message(role="assistant", tool_calls=answer)
        )
        return [Completion(message=message, finish_reason="stop")]


def run(*answers, names=("add", "look", "broken", "leaves"), given=(), **fields):
    agent = ChatAgent(tools=[f"tools_of_mine:{name}" for name in names], **fields)
    model = Scripted(*answers)
    task = HarborTask(task_id="t", instruction="go")
    ctx = AgentContext(sampling=SamplingParams(), seed=1)
    return asyncio.run(agent.run(task, model, given, ctx)), model


def call(name, arguments, call_id=None):
    return ToolCall(name=name, arguments=arguments, id=call_id)


def test_what_a_call_gave_is_told_to_the_model_which_answers_again():
    rollout, model = run((call("add", {"a": 2, "b": 3}, "c1"),), (call("look", {"place": "Rome"}),))
    assert rollout.output == "done"
    assert not rollout.truncated
    assert [message.role for message in rollout.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    told = model.prompts[1][-1]
    assert (told.content, told.tool_call_id, told.name) == ('{"sum": 5}', "c1", "add")
    assert model.prompts[2][-1].content == "rain in Rome"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (call("broken", {"x": 1}), "error: KeyError: 'no such row'"),
        (call("leaves", {"x": 1}), "error: SystemExit: 3"),
        (call("add", {"c": 1}), "unexpected keyword argument 'c'"),
        (call("add", {}), "missing 1 required positional argument: 'a'"),
        (call("add", '{"a": 1'), "error: the arguments are not a JSON object"),
        (call("sub", {"a": 1}), "error: there is no tool 'sub'; there are: add, look, broken, leaves"),
    ],
)
def test_an_error_is_told_to_the_model_and_ends_nothing(wrong, said):
    rollout, model = run((wrong,))
    assert said in model.prompts[1][-1].content
    assert rollout.output == "done"


def test_several_calls_at_once_are_answered_in_their_order():
    _, model = run((call("add", {"a": 1}, "x"), call("broken", {"x": 0}, "y")))
    assert [message.tool_call_id for message in model.prompts[1][-2:]] == ["x", "y"]


def test_a_malformed_call_is_text_and_the_last_answer():
    rollout, model = run("<tool_call>{not json</tool_call>")
    assert rollout.output == "<tool_call>{not json</tool_call>"
    assert len(model.prompts) == 1


def test_a_model_that_calls_without_end_is_cut_off_and_that_is_told():
    calls = [(call("add", {"a": n}),) for n in range(20)]
    rollout, model = run(*calls, max_turns=3)
    assert (len(model.prompts), rollout.truncated) == (3, True)
    rollout, model = run(*calls)
    assert (len(model.prompts), rollout.truncated) == (10, True)


def test_the_model_is_told_what_the_functions_take_unless_the_task_says_it():
    mine = {"type": "function", "function": {"name": "look", "description": "mine", "parameters": {}}}
    _, model = run(names=("add", "look"), given=(mine,))
    [look, add] = model.tools[0]
    assert look is mine
    assert add["function"] == {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a"],
        },
    }


def test_results_with_tools_are_not_kept_for_later():
    assert not ChatAgent(tools=["tools_of_mine:add"]).cacheable
    assert ChatAgent().cacheable


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (["tools_of_mine:nothing"], "has no 'nothing'"),
        (["tools_of_mine:number"], "is a int, not a function"),
        (["tools_of_mine:add", "tools_of_mine:add"], "two tools are called 'add'"),
        (["?"], "is not an import path"),
    ],
)
def test_what_is_no_tool_is_refused_when_the_agent_is_made(paths, wanted):
    with pytest.raises(PluginLoadError, match=wanted):
        ChatAgent(tools=paths)
    with pytest.raises((ConfigError, PluginError), match=wanted):
        Registry().build("agent", "chat", {"tools": paths})
