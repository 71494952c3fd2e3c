"""Experiments with an agent of the project's own: in training and in its evaluations the same."""

import json
from importlib.util import find_spec

import pytest
from small_project import Project

from evsys.errors import ConfigError, PluginLoadError

CONFIG = """
run:
  data: {{source_kind: jsonl, path: tasks.jsonl}}
  model: {{name: evsys/tiny}}
  {agent}
  algorithm:
    kind: rl
    params: {{learning_rate: 0.05, steps: 3, batch_size: 2, group_size: 3, lora_rank: 4, max_tokens: 4, max_turns: 2{more}}}
  backend: {{kind: mock}}
"""

AGENTS = '''
import aiohttp


async def over_http(task, ctx):
    """A program that knows an address and nothing else would do the same."""
    endpoint = await ctx.endpoint()
    messages = [{"role": "user", "content": task.instruction}]
    async with aiohttp.ClientSession() as session:
        for asked in ("go on", None):
            body = {"model": endpoint.model, "messages": messages}
            async with session.post(f"{endpoint.base_url}/chat/completions", json=body) as response:
                answer = (await response.json())["choices"][0]["message"]
            messages += [answer, {"role": "user", "content": asked}]
    if task.task_id == "t03":
        raise ValueError("stumbled")
    return answer["content"]
'''


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    made.code("agents", AGENTS)
    return made


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("agent", "more"),
    [
        ("", ", agent_import_path: 'src.agents:over_http'"),
        ("agent: {import_path: 'src.agents:over_http'}", ""),
    ],
    ids=["of the algorithm", "of the run"],
)
def test_an_agent_that_knows_an_address_is_trained_and_scored(project, agent, more):
    result = project.experiment(CONFIG.format(agent=agent, more=more)).run()
    [arm] = result.arms
    assert (arm.status, arm.run.steps) == ("completed", 3)
    folder = project.root / arm.run_dir
    rollouts = lines(folder / "training" / "rollouts.jsonl")
    assert len(rollouts) == 3 * 2 * 3
    assert sorted({line["step"] for line in rollouts}) == [1, 2, 3]
    for line in rollouts:
        first, second = line["rollout"]["turns"]
        sequence = first["prompt_tokens"] + first["tokens"]
        assert second["prompt_tokens"][: len(sequence)] == sequence
        assert line["rollout"]["policy_version"] == line["step"] - 1
        assert "policy_version" not in first
        assert (line["rollout"]["error"] is not None) == (line["rollout"]["task_id"] == "t03")
    scored = lines(folder / "validation" / "rollouts.jsonl")
    assert {len(line["rollout"]["turns"]) for line in scored} == {2}


def test_two_runs_over_http_come_to_the_same(project):
    text = CONFIG.format(agent="agent: {import_path: 'src.agents:over_http'}", more="")
    found = []
    for _ in range(2):
        [arm] = project.experiment(text, no_cache=True).run().arms
        rollouts = lines(project.root / arm.run_dir / "training" / "rollouts.jsonl")
        said = [line["rollout"] for line in rollouts]
        found.append(([(r["task_id"], r["sample_index"], r["turns"]) for r in said], arm.run.metrics["loss"]))
    assert found[0] == found[1]


def test_an_agent_that_is_not_there_is_told_before_anything_is_spent(project):
    more = ", agent_import_path: 'src.agents:over_htp'"
    with pytest.raises(ConfigError) as caught:
        project.experiment(CONFIG.format(agent="", more=more))
    [problem] = caught.value.problems
    assert problem.path.endswith("algorithm.params.agent_import_path")
    assert "over_http" in problem.hint


def test_an_environment_that_is_none_is_told_before_anything_is_spent(project):
    with pytest.raises(ConfigError) as caught:
        project.experiment(CONFIG.format(agent="", more=", environment: {kid: bwrap}"))
    paths = {problem.path.rpartition("params.")[2] for problem in caught.value.problems}
    assert "environment.kid" in paths


@pytest.mark.skipif(find_spec("harbor") is not None, reason="harbor is installed")
def test_an_environment_needs_the_engine_that_has_them(project):
    with pytest.raises(PluginLoadError, match="needs the package `harbor`"):
        project.experiment(CONFIG.format(agent="", more=", environment: 'null'"))


def test_two_who_are_to_act_are_one_too_many(project):
    more = ", agent_import_path: 'src.agents:over_http'"
    agent = "agent: {import_path: 'src.agents:over_http'}"
    with pytest.raises(ConfigError, match="both name the agent"):
        project.experiment(CONFIG.format(agent=agent, more=more))
