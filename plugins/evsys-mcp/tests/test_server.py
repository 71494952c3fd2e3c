"""The server in memory, with the official client in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
import math

import jsonschema
import pytest
from mcp import Client, MCPError

from evsys.errors import EvsysError
from evsys_mcp.server import server_of
from evsys_runtime import Toolbox, result_schema

ERAS = ("auto", "legacy")
READ_ONLY = {
    *("context", "next", "plan", "status", "wait", "show", "why", "compare", "history", "schema", "preview"),
}
CALLS = {
    "context": {},
    "next": {},
    "plan": {"config": "config.yaml"},
    "status": {},
    "wait": {},
    "show": {},
    "why": {},
    "compare": {"one": "last/one", "other": "last/two"},
    "history": {},
    "schema": {"kind": "experiment"},
    "preview": {"config": "config.yaml"},
}


@pytest.fixture
def toolbox(project):
    return Toolbox(project)


def values(result):
    """The content, which is twice the same: as text for models and as values for programs."""
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


@pytest.mark.parametrize("mode", ERAS)
async def test_tools_have_hints_and_closed_schemas(toolbox, mode):
    async with Client(server_of(toolbox), mode=mode) as client:
        listed = (await client.list_tools()).tools
    assert {tool.name for tool in listed if tool.annotations.read_only_hint} == READ_ONLY
    assert {tool.name for tool in listed if tool.annotations.destructive_hint} == {"stop", "retract"}
    for tool in listed:
        assert tool.title
        assert tool.description
        assert len(tool.name) <= 64
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema == result_schema(toolbox.tools[tool.name].result)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("name", CALLS)
async def test_an_answer_is_that_of_the_toolbox_and_fits_its_schema(toolbox, mode, name):
    arguments = {**CALLS[name], "max_tokens": 50_000}
    async with Client(server_of(toolbox), mode=mode) as client:
        answer = values(await client.call_tool(name, arguments))
    jsonschema.validate(answer, toolbox.tools[name].output_schema)
    wanted = toolbox.call(name, arguments).tree
    changing = {"token", "fit"}  # of a plan; the length that a context has with the time of day in it
    assert {k: v for k, v in answer.items() if k not in changing} == {
        k: v for k, v in wanted.items() if k not in changing
    }


@pytest.mark.parametrize("mode", ERAS)
async def test_what_is_wrong_is_said_to_the_model(toolbox, mode):
    async with Client(server_of(toolbox), mode=mode) as client:
        for name, arguments, message in (
            ("show", {"experimnt": "last"}, "did you mean 'experiment'"),
            ("shw", {}, "did you mean 'show'"),
            ("show", {"experiment": "plantd"}, "did you mean 'planted'"),
            ("run", {"token": "guessed"}, "call `plan` again"),
            ("stop", {"experiment": "last", "reason": "enough"}, "is not running"),
            ("wait", {"seconds": 90}, "$.seconds"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert message in result.content[0].text


async def test_a_long_answer_is_shortened_with_a_link_to_the_whole(toolbox):
    async with Client(server_of(toolbox)) as client:
        result = await client.call_tool("show", {"max_tokens": 1000})
        assert len(result.content[0].text.encode()) <= 1000 * 4
        _, words, link = result.content
        assert words.text.startswith("Shortened (")
        whole = json.loads((await client.read_resource(link.uri)).contents[0].text)
        assert whole == toolbox.call("show", {"max_tokens": 50_000}).tree
        with pytest.raises(MCPError, match="call the tool again"):
            await client.read_resource("evsys://answers/none")


@pytest.mark.parametrize("mode", ERAS)
async def test_text_of_the_model_never_reaches_an_agent(toolbox, project, planted, mode):
    record = next((project / ".evsys/experiments").glob("*-planted"))
    kept = "".join(path.read_text(encoding="utf-8") for path in record.rglob("*.jsonl"))
    assert planted in kept  # or this test would show nothing
    calls = [(name, {**arguments, "max_tokens": 90_000}) for name, arguments in CALLS.items()]
    calls += [("show", {"run": run, "max_tokens": 90_000}) for run in ("one", "two")]
    calls += [("why", {"arm": "one"}), ("history", {"runs": True}), ("history", {"text": "IGNORE"})]
    calls += [
        ("wait", {"event": event}) for event in ("warning.raised", "evaluation.finished", "run.finished")
    ]
    async with Client(server_of(toolbox), mode=mode) as client:
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            text = result.model_dump_json()
            assert not result.is_error, text
            assert "IGNORE-ALL" not in text, (name, arguments)


async def test_numbers_that_are_not_finite_are_null(toolbox, monkeypatch):
    import attrs

    from evsys_runtime.tools import reading

    found = reading.status(toolbox.lab, "last")
    odd = attrs.evolve(found, runs=(attrs.evolve(found.runs[0], loss=math.nan, scores={"val": math.inf}),))
    monkeypatch.setattr(reading, "status", lambda *_: odd)
    async with Client(server_of(toolbox)) as client:
        run = values(await client.call_tool("status", {}))["runs"][0]
    assert (run["loss"], run["scores"]) == (None, {"val": None})


async def test_a_fault_of_one_tool_ends_nothing(toolbox, monkeypatch):
    from evsys_runtime.tools import reading

    def refuse(*_):
        raise EvsysError("the key sk-ant-REDACTED is wrong")

    monkeypatch.setenv("SOME_API_KEY", "sk-ant-REDACTED")
    monkeypatch.setattr(reading, "status", refuse)
    async with Client(server_of(toolbox)) as client:
        result = await client.call_tool("status", {})
        assert result.is_error
        assert "sk-ant" not in result.content[0].text
        monkeypatch.setattr(reading, "status", lambda *_: 1 / 0)
        with pytest.raises(MCPError):
            await client.call_tool("status", {})
        assert not (await client.call_tool("context", {})).is_error


async def test_calls_are_answered_side_by_side(toolbox, monkeypatch):
    from threading import Barrier

    from evsys_runtime.tools import reading

    together, answer = Barrier(2, timeout=60), reading.status
    monkeypatch.setattr(reading, "status", lambda *args: (together.wait() and None) or answer(*args))
    async with Client(server_of(toolbox)) as client:
        both = await asyncio.gather(*(client.call_tool("status", {}) for _ in range(2)))
    assert not any(result.is_error for result in both)
