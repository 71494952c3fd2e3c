"""A checkpoint or an API model scored without training."""

import asyncio
import json
import sys
from pathlib import Path

import attrs
import pytest
from small_project import METADATA, RUN

from evsys import Registry, use_registry
from evsys.errors import ConfigError
from evsys.types import Completion, Message, ModelSpec, Usage
from evsys_backend_mock import MockBackend
from evsys_runtime.config.model import AgentConfig, BenchmarkConfig, PluginSpec, WatchdogConfig
from evsys_runtime.experiment.arm import backend as arm_backend
from evsys_runtime.experiment.evaluated_models import BaseModel, NamedClient, find_saved_model
from evsys_runtime.experiment.evaluation import ascore
from evsys_runtime.experiment.result_schemas import validate_result

ENTRY = BenchmarkConfig(name="val", path="tasks.jsonl", max_tokens=4)


class SaysA:
    async def generate(self, messages, sampling, *, n=1, tools=()):
        said = Message(role="assistant", content="a")
        return [Completion(message=said, finish_reason="stop", usage=Usage(prompt_tokens=1))] * n


class SaysNothing:
    async def generate(self, messages, sampling, *, n=1, tools=()):
        raise ConnectionError("the service is down")


class Hangs(MockBackend):
    """A backend of which one call never comes back."""

    call = ""
    closed = 0

    async def prepare(self, *args, **kwargs):
        await self.hangs_in("prepare")
        client = await super().prepare(*args, **kwargs)
        own = client.sampling_client

        async def sampling_client():
            await self.hangs_in("sampling_client")
            snapshot = await own()
            close = snapshot.close

            async def closes():
                type(self).closed += 1
                await close()

            snapshot.close = closes
            return snapshot

        client.sampling_client = sampling_client
        return client

    async def teardown(self, client):
        await self.hangs_in("teardown")
        await super().teardown(client)

    async def hangs_in(self, call):
        if call == self.call:
            await asyncio.Event().wait()


@pytest.fixture
def scored(project):
    def run(target, *entries: BenchmarkConfig, **options):
        registry = Registry()
        registry.register("inference_client", "says_a", SaysA)
        registry.register("inference_client", "says_nothing", SaysNothing)
        registry.register("backend", "hangs", Hangs)
        options = {"project_root": project.root, "registry": registry, "quiet": True, **options}
        with use_registry(registry):
            return asyncio.run(ascore(target, entries or (ENTRY,), **options))

    return run


def client(kind: str) -> NamedClient:
    return NamedClient(label="sage", client=PluginSpec(kind=kind))


@pytest.fixture
def checkpoint(project) -> Path:
    """The last checkpoint of a run."""
    result = project.experiment().run()
    return max((Path(result.directory) / "runs/run-s0/checkpoints").iterdir())


def outputs(run: Path, step: int) -> dict[str, str]:
    """What the model said to each task after a step."""
    lines = (run / "validation/rollouts.jsonl").read_text("utf-8").splitlines()
    found = [record for line in lines if (record := json.loads(line))["step"] == step]
    return {record["rollout"]["task_id"]: record["rollout"]["output"] for record in found}


def test_an_api_model_has_scores_and_a_record(scored, project):
    result = scored(client("says_a"))
    [evaluation] = result.evaluations
    assert (result.status, evaluation.model, evaluation.metrics["mean_reward"].value) == (
        "completed",
        "sage",
        1.0,
    )
    run = Path(result.run_dir)
    assert run.is_relative_to(project.root / ".evsys/evaluations")
    validate_result(json.loads((run / "run_result.json").read_text("utf-8")), "run_result")
    assert len((run / "validation/rollouts.jsonl").read_text("utf-8").splitlines()) == 12
    facts = json.loads((run.parent.parent / "experiment.json").read_text("utf-8"))
    assert facts["status"] == "completed"
    assert facts["finished"]


def test_a_checkpoint_says_what_its_run_said(scored, checkpoint):
    saved = find_saved_model(checkpoint)
    assert (saved.step, saved.label) == (6, "run-s0-step6")
    assert saved.backend.kind == "evsys-backend-mock/mock"
    result = scored(saved)
    assert [(e.step, e.model, e.status) for e in result.evaluations] == [(6, None, "completed")]
    run = checkpoint.parent.parent
    assert outputs(Path(result.run_dir), 6) == outputs(run, 6)
    assert outputs(run, 6) != outputs(run, 0)


ASKING = """
from evsys.types import Message

async def asks_twice(task, model, ctx):
    messages = [Message(role="user", content=task.instruction)]
    for _ in range(2):
        [completion] = await model.generate(messages, ctx.sampling)
        messages += [completion.message, Message(role="user", content="sure?")]
    return completion.message.content
"""


def messages_of(run: Path) -> list[list[str]]:
    lines = (run / "validation/rollouts.jsonl").read_text("utf-8").splitlines()
    return [[said["content"] for said in json.loads(line)["rollout"]["messages"]] for line in lines]


def test_a_checkpoint_is_scored_in_what_its_run_was_scored_in(scored, project):
    project.code("agents", ASKING)
    own = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    system_prompt: be brief")
    more = "\n  agent: {import_path: src.agents.asks_twice}\n"
    result = project.experiment(f"run:{RUN}{more}", metadata=own).run()
    saved = find_saved_model(max((Path(result.directory) / "runs/run-s0/checkpoints").iterdir()))
    assert saved.harness.system_prompt == "be brief"
    again = scored(saved)
    plain = scored(saved, attrs.evolve(ENTRY, agent=AgentConfig(kind="chat"), system_prompt=""))
    assert all(len(said) == 4 for said in messages_of(Path(again.run_dir)))
    assert any("the agent 'src.agents.asks_twice', the system prompt 'be brief'" in w for w in again.warnings)
    assert all(len(said) == 2 and "be brief" not in said for said in messages_of(Path(plain.run_dir)))


def test_a_base_model_says_what_a_run_said_before_its_training(scored, checkpoint):
    saved = find_saved_model(checkpoint)
    result = scored(BaseModel(model=ModelSpec(name="evsys/tiny"), backend=saved.backend))
    assert [(e.step, e.model, e.status) for e in result.evaluations] == [(0, None, "completed")]
    assert outputs(Path(result.run_dir), 0) == outputs(checkpoint.parent.parent, 0)


def test_several_benchmarks_are_scored_in_their_order(scored):
    result = scored(client("says_a"), ENTRY, BenchmarkConfig(name="again", path="tasks.jsonl", limit=3))
    assert [(e.benchmark, e.tasks) for e in result.evaluations] == [("val", 12), ("again", 3)]


def test_two_benchmarks_of_one_name_are_refused(scored):
    with pytest.raises(ConfigError, match="two benchmarks are called 'val'"):
        scored(client("says_a"), ENTRY, ENTRY)


def test_a_model_that_doesnt_answer_is_invalid_and_on_record(scored):
    result = scored(client("says_nothing"))
    assert result.status == "invalid"
    assert "the service is down" in result.failure.message
    assert (Path(result.run_dir) / "run_result.json").is_file()


def test_a_folder_that_is_no_checkpoint_of_a_run_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="not a complete checkpoint of a run"):
        find_saved_model(tmp_path)


def test_a_client_that_cant_be_made_leaves_no_record(scored, project):
    with pytest.raises(Exception, match="nobody"):
        scored(client("nobody"))
    assert not (project.root / ".evsys/evaluations").exists()


OVER_HTTP = """
import aiohttp


async def over_http(task, ctx):
    endpoint = await ctx.endpoint()
    body = {"model": endpoint.model, "messages": [{"role": "user", "content": task.instruction}]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{endpoint.base_url}/chat/completions", json=body) as response,
    ):
        return (await response.json())["choices"][0]["message"]["content"]
"""


@pytest.fixture
def over_http(project, monkeypatch) -> BenchmarkConfig:
    """The entry, with an agent that asks by HTTP."""
    (project.root / "http_agents.py").write_text(OVER_HTTP, encoding="utf-8")
    monkeypatch.syspath_prepend(project.root)
    agent = AgentConfig(import_path="http_agents:over_http")
    yield attrs.evolve(ENTRY, name="asked", agent=agent)
    sys.modules.pop("http_agents", None)


def test_an_agent_that_knows_an_address_alone_says_of_a_checkpoint_what_others_do(
    checkpoint, scored, over_http
):
    plain, asked = scored(find_saved_model(checkpoint), ENTRY, over_http).evaluations
    assert asked.scored == 12
    assert asked.task_rewards == plain.task_rewards


def test_a_service_has_no_address_for_rollouts_and_says_so(scored, over_http):
    result = scored(client("says_a"), over_http)
    [evaluation] = result.evaluations
    assert evaluation.no_score == 12
    lines = Path(result.run_dir, "validation/rollouts.jsonl").read_text("utf-8")
    assert "this model has no address for rollouts" in lines


@pytest.fixture
def hanging(checkpoint, scored, monkeypatch):
    """A checkpoint that is scored on a backend of which one call never comes back."""
    monkeypatch.setattr(Hangs, "closed", 0)
    monkeypatch.setattr(arm_backend, "TEARDOWN_SECONDS", 0.1)

    def run(call: str):
        monkeypatch.setattr(Hangs, "call", call)
        saved = attrs.evolve(find_saved_model(checkpoint), backend=PluginSpec(kind="hangs"))
        return scored(saved, watchdog=WatchdogConfig(floor_seconds=1.0))

    return run


@pytest.mark.parametrize(("call", "scorings"), [("prepare", 0), ("sampling_client", 0), ("teardown", 1)])
def test_a_backend_that_does_not_come_back_ends_a_scoring_without_training_too(hanging, call, scorings):
    result = hanging(call)
    assert (result.status, result.failure.boundary, result.failure.plugin) == ("stalled", "backend", "hangs")
    assert [e.status for e in result.evaluations] == ["completed"] * scorings
    run = Path(result.run_dir)
    assert json.loads((run / "run_result.json").read_text("utf-8"))["status"] == "stalled"
    assert "in hangs_in\n" in (run / "stacks.txt").read_text("utf-8")
    assert json.loads((run.parent.parent / "experiment.json").read_text("utf-8"))["status"] == "stalled"


def test_the_snapshot_of_a_checkpoint_is_let_go_of_when_it_is_scored(hanging):
    assert hanging("nothing").status == "completed"
    assert Hangs.closed == 1
