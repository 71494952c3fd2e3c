"""Which engine an entry gets. Harbor needn't be there: its agents are told by the name of their base."""

import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from evsys import Registry
from evsys.errors import ConfigError, Problem, RolloutError
from evsys.types import HarborTask
from evsys_runtime.config.agents import check_agent, is_harness
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.engines import engine_kind, engine_problems
from evsys_runtime.config.model import AgentConfig, BenchmarkConfig, PluginSpec
from evsys_runtime.evaluation.agents import HarnessAgent, resolve_agent
from evsys_std.engine import DirectEngine

CHAT = [HarborTask(task_id="t", instruction="do")]
FOLDER = [HarborTask(task_id="t", instruction="do", path="/tasks/t")]
PLACE = PluginSpec(kind="bwrap")


@pytest.fixture
def own(monkeypatch):
    """A module with agents derived from a base that is called what Harbor's is."""
    base = type(
        "BaseAgent", (), {"__module__": "harbor.agents.base", "__init__": lambda self, logs_dir, **more: None}
    )

    async def run(self, instruction, environment, context): ...

    module = ModuleType("own_agents")
    module.__spec__ = ModuleSpec("own_agents", None)
    module.Mine = type("Mine", (base,), {"run": run})
    module.Strict = type("Strict", (base,), {"run": run, "__init__": lambda self, logs_dir, depth: None})
    module.Similar = type("BaseAgent", (), {"run": run})
    monkeypatch.setitem(sys.modules, "own_agents", module)
    return module


@pytest.mark.parametrize(
    ("entry", "tasks", "harness", "kind"),
    [
        ({}, CHAT, False, "direct"),
        ({}, FOLDER, False, "harbor"),
        ({"environment": PLACE}, CHAT, False, "harbor"),
        ({}, CHAT, True, "harbor"),
        ({"engine": "mine", "environment": PLACE}, FOLDER, True, "mine"),
    ],
)
def test_auto_is_direct_unless_something_needs_a_place_to_act(entry, tasks, harness, kind):
    assert engine_kind(BenchmarkConfig(name="x", **entry), tasks, harness=harness) == kind


@pytest.mark.parametrize(
    ("entry", "tasks", "harness", "said"),
    [
        ({"environment": PLACE}, CHAT, False, "has no environments"),
        ({}, CHAT, True, "can't run Harbor's agents"),
        ({}, FOLDER, False, "can't run tasks that are folders"),
    ],
)
def test_what_direct_cannot_do_is_a_problem_that_names_harbor(entry, tasks, harness, said):
    found = engine_problems(
        DirectEngine(), BenchmarkConfig(name="x", **entry), tasks, harness=harness, place="$.b"
    )
    [problem] = found
    assert problem == Problem(path="$.b.engine", message=f"engine 'direct' {said}", hint="write engine: harbor, or leave it out")  # fmt: skip


@pytest.mark.parametrize(
    ("failure", "path", "message"),
    [
        (RolloutError("no room"), "$.b.engine", "no room"),
        (ValueError("odd"), "$.b.engine", "engine 'picky': ValueError: odd"),
        (ConfigError([Problem(path="depth", message="too deep")]), "$.b.environment.params", "too deep"),
    ],
)
def test_whatever_an_engine_raises_is_a_problem(failure, path, message):
    class Picky:
        name = "picky"

        def check_work(self, tasks, environment, harness):
            raise failure

    [problem] = engine_problems(Picky(), BenchmarkConfig(name="x"), CHAT, harness=False, place="$.b")
    assert (problem.path, problem.message) == (path, message)


def test_an_engine_that_says_nothing_of_its_work_is_asked_nothing():
    assert list(engine_problems(object(), BenchmarkConfig(name="x"), FOLDER, harness=True, place="$.b")) == []


# --- agents of Harbor's ---------------------------------------------------------------------------------------------------------


def test_harbors_agents_are_told_by_their_base_alone(own):
    assert is_harness(own.Mine)
    assert not is_harness(own.Similar)
    assert not is_harness(own.Mine.__new__(own.Mine))


@pytest.mark.parametrize("path", ["own_agents:Mine", "own_agents.Mine"])
def test_one_becomes_a_harness_with_its_placeholders_not_put_in(own, monkeypatch, path):
    monkeypatch.setenv("EVSYS_TEST_KEY", "secret")
    found = resolve_agent(AgentConfig(import_path=path, params={"key": "${EVSYS_TEST_KEY}"}), Registry())
    assert isinstance(found, HarnessAgent)
    assert (found.import_path, found.params) == ("own_agents:Mine", {"key": "${EVSYS_TEST_KEY}"})


def test_its_params_are_checked_without_those_that_the_engine_brings(own):
    plugins = Plugins(Registry())
    assert (
        check_agent(plugins, AgentConfig(import_path="own_agents:Mine", params={"any": 1}), "$.a").problems
        == ()
    )
    [problem] = check_agent(
        plugins, AgentConfig(import_path="own_agents:Strict", params={"width": 1}), "$.a"
    ).problems
    assert problem.path == "$.a.params"
    assert "width" in problem.message


def test_looking_for_an_agent_keeps_its_libraries_from_calling_home(own, monkeypatch):
    monkeypatch.delenv("HARBOR_TELEMETRY", raising=False)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "")
    check_agent(Plugins(Registry()), AgentConfig(import_path="own_agents:Mine"), "$.a")
    assert os.environ["HARBOR_TELEMETRY"] == "0"
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == ""  # what the user said stays
    monkeypatch.delenv("HARBOR_TELEMETRY")
