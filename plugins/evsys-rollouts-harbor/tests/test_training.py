"""Agents of Harbor's, each trained for a few steps of `rl` on exactly what the sampler said."""

import json
import sys

import pytest
from harness_runs import by_seed, sampled_turns, tasks, train, trained_turns
from rollout_parts import chat_tasks, policy, run
from sandboxes import needs_sandbox
from small_project import Project
from task_files import PASSES, native_task

from evsys import Registry
from evsys.errors import AlgorithmError
from evsys_rollouts_harbor.engine import HarborEngine
from evsys_runtime.config.model import AgentConfig
from evsys_runtime.data.benchmark import load_tasks
from evsys_runtime.evaluation.agents import resolve_agent

ANSWERS = by_seed("hello ab", "café! abc")

OWN = '''
import aiohttp
from harbor import BaseAgent

from evsys.types import Message
from evsys_rollouts_harbor import policy_endpoint, policy_model


TRIED = set()


class APIConnectionError(Exception):
    pass


class InProcess(BaseAgent):
    """Asks the live model, and keeps texts only."""

    def __init__(self, *args, fails=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.fails = fails

    @staticmethod
    def name():
        return "own"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        said = [instruction.strip()]
        again = self.logs_dir.parent.name in TRIED
        TRIED.add(self.logs_dir.parent.name)
        for _ in range(2):
            roles = ["user", "assistant"] * len(said)
            messages = [Message(role=role, content=text) for role, text in zip(roles, said)]
            said += [await self.ask(messages), "go on"]
            if self.fails and not again:
                raise APIConnectionError("the service is away")

    async def ask(self, messages):
        [completion] = await policy_model(self).generate(messages)
        return completion.message.content


class OverHttp(InProcess):
    """Knows an address."""

    async def ask(self, messages):
        endpoint = await policy_endpoint(self)
        body = {"model": endpoint.model, "messages": [{"role": m.role, "content": m.content} for m in messages]}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{endpoint.base_url}/chat/completions", json=body) as response,
        ):
            return (await response.json())["choices"][0]["message"]["content"]


class Told(OverHttp):
    """Is told an address by its params."""

    def __init__(self, *args, api_base, llm_kwargs, **kwargs):
        super().__init__(*args, **kwargs)
        assert llm_kwargs == {"api_key": "evsys", "name": "the m"}
        self.api_base = api_base

    async def ask(self, messages):
        assert (await policy_endpoint(self)).base_url == self.api_base
        return await super().ask(messages)


class Stranger(BaseAgent):
    """Knows nothing of evsys: it reads the model and its address where agents of Harbor's find them."""

    def __init__(self, *args, api_base=None, api_key=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.api_base, self.api_key = api_base, api_key

    @staticmethod
    def name():
        return "stranger"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        messages = [{"role": "user", "content": instruction.strip()}]
        for _ in range(2):
            body = {"model": self.model_name, "messages": messages}
            headers = {"Authorization": f"Bearer {self.api_key}"}
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.post(f"{self.api_base}/chat/completions", json=body) as response,
            ):
                answer = await response.json()
            said = answer["choices"][0]["message"]["content"]
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "go on"}]


class ByEnvironment(Stranger):
    """The same by environment variables."""

    async def run(self, instruction, environment, context):
        env = self.extra_env
        assert env["OPENAI_API_BASE"] == env["OPENAI_BASE_URL"]
        self.api_base, self.api_key = env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"]
        await super().run(instruction, environment, context)


class InSandbox(Stranger):
    """Leaves the asking to a program, which finds the address in its environment."""

    async def run(self, instruction, environment, context):
        said = await environment.exec("echo $OPENAI_BASE_URL $OPENAI_API_KEY")
        self.api_base, self.api_key = said.stdout.split()
        await super().run(instruction, environment, context)


class WithDetails(InProcess):
    """Brings ids of its own from a model that nobody here sees."""

    async def run(self, instruction, environment, context):
        number = sum(map(ord, self.logs_dir.parent.name))
        detail = {
            "prompt_token_ids": [[1, 2], [1, 2, 3, number, 9]],
            "completion_token_ids": [[3, number], [5]],
            "logprobs": [[-0.5, -0.25], [-0.125]],
        }
        if self.fails:
            detail["logprobs"][1] = []
        context.rollout_details = [detail]
'''


@pytest.fixture(autouse=True)
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_agents.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_agents", None)


@pytest.fixture
def registry():
    return Registry()


def agent(path, **params):
    return resolve_agent(AgentConfig(import_path=path, params=params), Registry())


ADDRESS = {
    "api_base": "${rollout.base_url}",
    "llm_kwargs": {"api_key": "${rollout.api_key}", "name": "the ${rollout.model}"},
}


@pytest.mark.parametrize(
    ("path", "params"),
    [("InProcess", {}), ("OverHttp", {}), ("Told", ADDRESS)],
    ids=lambda value: str(value)[:9],
)
def test_a_base_agent_is_trained_on_what_the_sampler_said(scratch, tmp_path, registry, path, params):
    own = agent(f"own_agents:{path}", **params)
    client, rollouts = train(tmp_path / "run", registry, own, ANSWERS)
    assert [rollout["error"] for rollout in rollouts] == [None] * 8
    assert len(client.log) == 2 * 2 * 2 * 2
    assert trained_turns(client) == sampled_turns(client)
    assert len(client.data) == 8


@pytest.mark.parametrize("path", ["InProcess", "OverHttp"])
def test_an_attempt_that_failed_leaves_no_turns_to_the_next(scratch, tmp_path, registry, path):
    own = agent(f"own_agents:{path}", fails=True)
    client, rollouts = train(tmp_path / "run", registry, own, ANSWERS, steps=1, data=tasks(1), batch_size=1)
    assert [rollout["metadata"]["attempts"] for rollout in rollouts] == [2, 2]
    assert len(client.log) == 2 * (1 + 2)
    assert len(trained_turns(client)) == 2 * 2
    assert all(turn in sampled_turns(client) for turn in trained_turns(client))


def test_ids_that_an_agent_brings_itself_are_trained_where_they_can_be_right(scratch, tmp_path, registry):
    own = agent("own_agents:WithDetails")
    client, _ = train(tmp_path / "run", registry, own, ANSWERS, advantage="none")
    assert client.log == []
    assert len(client.data) == 8
    for datum in client.data:
        assert datum.tokens.tolist()[:3] == [1, 2, 3]
        assert datum.loss_inputs["weights"].tolist() == [0, 1, 1, 0, 1]
        assert datum.loss_inputs["logprobs"].tolist() == [0, -0.5, -0.25, 0, -0.125]


def test_ids_of_an_agents_own_that_cannot_be_right_are_refused_and_counted(scratch, tmp_path, registry):
    own = agent("own_agents:WithDetails", fails=True)
    with pytest.raises(AlgorithmError, match="4 token_ids_refused"):
        train(tmp_path / "run", registry, own, ANSWERS, advantage="none")


def test_an_address_that_no_model_has_is_no_score_and_says_why(scratch):
    own = agent("own_agents:Told", **ADDRESS)
    [rollout] = run(HarborEngine(), chat_tasks(1), policy(agent=own))
    assert "this model has no address for rollouts" in rollout.error


@pytest.mark.parametrize("path", ["Stranger", "ByEnvironment"])
def test_an_agent_that_knows_nothing_of_evsys_is_trained_by_its_import_path_alone(
    scratch, tmp_path, registry, path
):
    client, rollouts = train(tmp_path / "run", registry, agent(f"own_agents:{path}"), ANSWERS)
    assert [rollout["error"] for rollout in rollouts] == [None] * 8
    assert [len(rollout["turns"]) for rollout in rollouts] == [2] * 8
    assert trained_turns(client) == sampled_turns(client)


@needs_sandbox
def test_programs_of_an_agent_find_the_model_in_their_environment(scratch, tmp_path, registry):
    native_task(tmp_path / "suite" / "greet", instruction="Say hello.", test=PASSES)
    data = type(tasks())(load_tasks(tmp_path / "suite")[0])
    own = agent("own_agents:InSandbox")
    client, rollouts = train(
        tmp_path / "run", registry, own, ANSWERS, data=data, batch_size=1, advantage="none"
    )
    assert [rollout["error"] for rollout in rollouts] == [None] * 4
    assert trained_turns(client) == sampled_turns(client)


def test_an_agent_that_is_given_a_model_is_left_to_ask_that(scratch):
    own = agent("own_agents:Stranger", model_name="openai/other", api_base="http://127.0.0.1:9")
    [rollout] = run(HarborEngine(), chat_tasks(1), policy(agent=own))
    assert "127.0.0.1:9" in rollout.error or "Cannot connect" in rollout.error


ALONE = """
run:
  data: {source_kind: jsonl, path: tasks.jsonl}
  model: {name: evsys/tiny}
  algorithm:
    kind: rl
    params: {agent_import_path: own_agents.Stranger, learning_rate: 0.05, steps: 2, batch_size: 2, group_size: 2, lora_rank: 4, max_tokens: 4}
  backend: {kind: mock}
"""


def test_a_whole_experiment_trains_and_scores_such_an_agent_with_its_path_alone(scratch, tmp_path):
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project")
    [arm] = project.experiment(ALONE).run().arms
    assert (arm.status, arm.run.steps) == ("completed", 2)
    for phase in ("training", "validation"):
        path = project.root / arm.run_dir / phase / "rollouts.jsonl"
        rollouts = [json.loads(line)["rollout"] for line in path.read_text(encoding="utf-8").splitlines()]
        assert {rollout["error"] for rollout in rollouts} == {None}
        assert {len(rollout["turns"]) for rollout in rollouts} == {2}


CONFIG = """
run:
  data: {source_kind: jsonl, path: tasks.jsonl}
  model: {name: evsys/tiny}
  agent:
    import_path: own_agents:Told
    params: {api_base: "${rollout.base_url}", llm_kwargs: {api_key: "${rollout.api_key}", name: "the m"}}
  algorithm:
    kind: rl
    params: {learning_rate: 0.05, steps: 2, batch_size: 2, group_size: 2, lora_rank: 4, max_tokens: 4, max_turns: 2}
  backend: {kind: mock}
"""


def test_a_whole_experiment_trains_and_scores_an_agent_that_is_told_an_address(scratch, tmp_path):
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project")
    result = project.experiment(CONFIG).run()
    [arm] = result.arms
    assert (arm.status, arm.run.steps) == ("completed", 2)
    folder = project.root / arm.run_dir
    for phase in ("training", "validation"):
        lines = (folder / phase / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
        rollouts = [json.loads(line)["rollout"] for line in lines]
        assert {rollout["error"] for rollout in rollouts} == {None}
        assert {len(rollout["turns"]) for rollout in rollouts} == {2}


TOLD = {
    "model_name": "openai/${rollout.model}",
    "api_base": "${rollout.base_url}",
    "llm_kwargs": {"api_key": "${rollout.api_key}"},
    "record_terminal_session": False,
}


@needs_sandbox
@pytest.mark.filterwarnings("ignore")  # importing LiteLLM warns of much that isn't ours
@pytest.mark.parametrize("params", [{}, TOLD], ids=["by its path alone", "told the address"])
def test_terminus_2_is_trained_on_what_the_sampler_said(scratch, tmp_path, registry, monkeypatch, params):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    native_task(tmp_path / "suite" / "greet", instruction="Write hello to /app/out.txt.", test=PASSES)
    [task], _ = load_tasks(tmp_path / "suite")
    command = {"keystrokes": "echo hello > /app/out.txt\n", "duration": 0.1}

    def says(prompt, seed):
        done = "echo hello" in prompt
        plan = ("ab", "abc", "café!")[seed % 3]
        body = {"analysis": "hello ab", "plan": plan, "commands": [] if done else [command]}
        return json.dumps(body | ({"task_complete": True} if done else {}), ensure_ascii=False)

    terminus = agent("harbor.agents.terminus_2:Terminus2", **params)
    client, rollouts = train(
        tmp_path / "run",
        registry,
        terminus,
        says,
        data=type(tasks())([task]),
        batch_size=1,
        max_tokens=1000,
        advantage="none",
    )
    assert [rollout["error"] for rollout in rollouts] == [None] * 4
    assert [len(rollout["turns"]) for rollout in rollouts] == [3] * 4
    assert trained_turns(client) == sampled_turns(client)
    assert len(client.log) == 12
    assert len(client.data) == 4
