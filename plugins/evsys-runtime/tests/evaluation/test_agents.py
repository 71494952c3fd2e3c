import asyncio
import sys
from types import ModuleType

import attrs
import pytest

from evsys.errors import ConfigError, PluginContractError, PluginLoadError, PluginNotFoundError
from evsys.types import AgentContext, HarborTask, SamplingParams
from evsys_runtime.config.model import AgentConfig
from evsys_runtime.evaluation.agents import FunctionAgent, resolve_agent

TASK = HarborTask(task_id="t", instruction="do")
CTX = AgentContext(sampling=SamplingParams(), seed=1)


def run(agent) -> object:
    return asyncio.run(agent.run(TASK, "model", ("tool",), CTX))


async def harness(task, model, tools, ctx):
    return f"{task.task_id} {model} {tools} {ctx.seed}"


class Harness:
    """A user's class, built from its params."""

    def __init__(self, greeting="hello"):
        self.greeting = greeting

    async def run(self, task, model, tools, ctx):
        return self.greeting


class Configured:
    @attrs.frozen(kw_only=True)
    class Config:
        depth: int = 1

    def __init__(self, depth):
        self.depth = depth

    async def run(self, task, model, tools, ctx):
        return self.depth


async def calling(agent, *, depth: int = 0):
    return depth


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The user's module, as the project's `src` would be."""
    module = ModuleType("users_agents")
    module.harness, module.Harness, module.Configured, module.calling = harness, Harness, Configured, calling
    module.ready = Harness("ready")
    monkeypatch.setitem(sys.modules, "users_agents", module)
    return module


def test_nothing_named_is_the_registered_chat(registry):
    assert type(resolve_agent(None, registry)).__name__ == "Ask"
    assert type(resolve_agent(AgentConfig(), registry)).__name__ == "Ask"


@pytest.mark.parametrize("path", ["users_agents:harness", "users_agents.harness"])
def test_an_async_function_is_an_agent_by_colon_or_dot(registry, path):
    assert run(resolve_agent(AgentConfig(import_path=path), registry)) == "t model ('tool',) 1"


def test_a_class_is_built_from_its_params(registry):
    spec = AgentConfig(import_path="users_agents:Harness", params={"greeting": "hi"})
    assert run(resolve_agent(spec, registry)) == "hi"
    assert run(resolve_agent(AgentConfig(import_path="users_agents:Harness"), registry)) == "hello"
    assert (
        run(resolve_agent(AgentConfig(import_path="users_agents:Configured", params={"depth": 3}), registry))
        == 3
    )
    assert run(resolve_agent(AgentConfig(import_path="users_agents:Configured"), registry)) == 1


def test_an_object_that_exists_is_taken_as_it_is(registry):
    assert run(resolve_agent(AgentConfig(import_path="users_agents:ready"), registry)) == "ready"
    with pytest.raises(ConfigError, match="takes no params"):
        resolve_agent(AgentConfig(import_path="users_agents:ready", params={"a": 1}), registry)


def test_params_of_a_class_are_checked_with_their_place(registry):
    spec = AgentConfig(import_path="users_agents:Configured", params={"deep": 3})
    with pytest.raises(ConfigError, match="deep") as caught:
        resolve_agent(spec, registry, path="$.run.agent")
    assert caught.value.problems[0].path.startswith("$.run.agent.params")
    with pytest.raises(PluginContractError, match="Harness"):
        resolve_agent(AgentConfig(import_path="users_agents:Harness", params={"deep": 3}), registry)


def test_a_registered_function_or_class_is_found_by_kind(registry):
    registry.register("agent", "mine", harness)
    registry.register("agent", "configured", Configured)
    assert run(resolve_agent(AgentConfig(kind="mine"), registry)) == "t model ('tool',) 1"
    assert run(resolve_agent(AgentConfig(kind="configured", params={"depth": 5}), registry)) == 5
    with pytest.raises(PluginNotFoundError, match="mien"):
        resolve_agent(AgentConfig(kind="mien"), registry)


def test_kind_and_import_path_together_are_refused(registry):
    with pytest.raises(ConfigError, match="not both"):
        resolve_agent(AgentConfig(kind="chat", import_path="users_agents:harness"), registry)


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("nowhere:Agent", PluginLoadError, "'nowhere:Agent' can't be loaded: ModuleNotFoundError"),
        ("users_agents:Absent", PluginLoadError, "users_agents has no 'Absent'"),
        ("users_agents", ConfigError, "is not an import path"),
        (":Agent", ConfigError, "is not an import path"),
        ("users_agents:", ConfigError, "is not an import path"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(registry, path, error, message):
    with pytest.raises(error, match=message):
        resolve_agent(AgentConfig(import_path=path), registry)


def test_what_cannot_act_is_refused(registry, module):
    module.plain = lambda task, model, tools, ctx: "x"
    module.Idle = type("Idle", (), {})
    module.Sync = type("Sync", (), {"run": lambda self, task, model, tools, ctx: "x"})
    for name, message in (("plain", "not an async function"), ("Idle", "run"), ("Sync", "no async `run`")):
        with pytest.raises(PluginContractError, match=message):
            resolve_agent(AgentConfig(import_path=f"users_agents:{name}"), registry)


def test_a_function_takes_what_it_names_or_what_comes_first():
    async def by_name(ctx, task):
        return ctx.seed, task.task_id

    async def in_order(question, llm):
        return question.task_id, llm

    async def with_params(task, model, *, depth):
        return depth

    assert run(FunctionAgent(by_name)) == (1, "t")
    assert run(FunctionAgent(in_order)) == ("t", "model")
    assert run(FunctionAgent(with_params, {"depth": 4})) == 4


def test_a_function_that_asks_for_something_else_is_refused():
    async def mixed(task, llm):
        return ""

    async def many(a, b, c, d, e):
        return ""

    for function in (mixed, many):
        with pytest.raises(PluginContractError, match="task, model, tools and ctx"):
            FunctionAgent(function)
