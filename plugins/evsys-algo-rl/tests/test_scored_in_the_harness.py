"""What a run trains in is what it is scored in, unless a benchmark entry names its own."""

import json

import pytest
from small_project import Project

from evsys_runtime.experiment import Experiment

AGENTS = '''
from pathlib import Path

from evsys.types import Message


async def twice(task, model, ctx):
    """Asks again; knows nothing of how often it may."""
    if (Path(__file__).parent / "fail").exists():
        raise RuntimeError("it fails for now")
    messages = [Message(role="user", content=task.instruction)]
    for question in ("sure?", None):
        [completion] = await model.generate(messages, ctx.sampling)
        messages += [completion.message, Message(role="user", content=question or "")]
    return completion.message.content


async def patient(task, model, ctx):
    """Asks as often as it may, and says how often that is."""
    [completion] = await model.generate([Message(role="user", content=task.instruction)], ctx.sampling)
    return f"{ctx.max_turns}"
'''

CONFIG = """run:
  data: {{source_kind: jsonl, path: tasks.jsonl}}
  model: {{name: evsys/tiny}}
  algorithm:
    kind: rl
    params: {{learning_rate: 0.05, steps: 2, batch_size: 2, group_size: 2, lora_rank: 4, max_tokens: 4{more}}}
  backend: {{kind: mock}}
  {agent}
"""


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    made.code("agents", AGENTS)
    return made


def metadata(more: str = "") -> str:
    return (
        "\nmetadata:\n  success_metric: val.mean_reward\n"
        f"  benchmark: {{name: val, path: tasks.jsonl, max_tokens: 4{more}}}\n"
    )


def rollouts(project, result, phase):
    path = project.root / result.arms[0].run_dir / phase / "rollouts.jsonl"
    return [json.loads(line)["rollout"] for line in path.read_text(encoding="utf-8").splitlines()]


def resolved(project, result):
    path = project.root / result.directory / "resolved.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_multi_turn_agent_trains_without_max_turns_and_is_scored(project):
    result = project.experiment(CONFIG.format(agent="", more=", agent_import_path: src.agents.twice")).run()
    assert (result.arms[0].status, result.arms[0].run.steps) == ("completed", 2)
    assert not any("max_turns" in warning for warning in result.arms[0].run.warnings)
    for phase in ("training", "validation"):
        assert {len(one["turns"]) for one in rollouts(project, result, phase)} == {2}
    [arm] = resolved(project, result)["arms"]
    assert arm["harness"]["agent"] == {"import_path": "src.agents.twice", "params": {}}


def test_the_system_prompt_of_the_training_goes_before_scored_tasks(project):
    result = project.experiment(CONFIG.format(agent="", more=", system_prompt: be brief")).run()
    for phase in ("training", "validation"):
        assert {one["messages"][0]["content"] for one in rollouts(project, result, phase)} == {"be brief"}
    [arm] = resolved(project, result)["arms"]
    assert arm["harness"]["system_prompt"] == "be brief"


def test_agents_are_told_the_same_number_of_turns_in_training_and_scorings(project):
    more = ", agent_import_path: src.agents.patient, max_turns: 7"
    result = project.experiment(CONFIG.format(agent="", more=more)).run()
    for phase in ("training", "validation"):
        assert {one["output"] for one in rollouts(project, result, phase)} == {"7"}


def test_an_entry_with_its_own_agent_and_prompt_is_scored_by_those_and_that_is_reported(project):
    config = CONFIG.format(agent="", more=", agent_import_path: src.agents.twice, system_prompt: be brief")
    own = ", agent: {kind: chat}, system_prompt: ''"
    result = project.experiment(config, metadata=metadata(own)).run()
    assert {len(one["turns"]) for one in rollouts(project, result, "validation")} == {1}
    assert {one["messages"][0]["role"] for one in rollouts(project, result, "validation")} == {"user"}
    [told] = [warning for warning in result.warnings if "unlike the rollouts of the training" in warning]
    assert "'val' is scored with the agent 'chat' and not 'src.agents.twice'" in told
    assert "with a system prompt of its own" in told


def test_tasks_with_system_messages_of_their_own_keep_them(project):
    tasks = [json.loads(line) for line in (project.root / "tasks.jsonl").read_text("utf-8").splitlines()]
    for task in tasks:
        said = [{"role": "system", "content": "own"}, {"role": "user", "content": task["instruction"]}]
        task["instruction"] = said
    project.write("val.jsonl", tasks)
    config = CONFIG.format(agent="", more=", system_prompt: be brief")
    result = project.experiment(config, metadata=metadata().replace("tasks.jsonl", "val.jsonl")).run()
    assert {one["messages"][0]["content"] for one in rollouts(project, result, "validation")} == {"own"}
    assert "is not used" in "".join(result.arms[0].evaluations[0].warnings)


def test_untrained_scores_are_shared_between_arms_of_one_harness_only(project):
    text = CONFIG.format(agent="", more="").replace("run:", "base_run:", 1)
    matrix = "matrix:\n  axes: {algorithm.params.system_prompt: [null, be brief]}\n"
    result = project.experiment(matrix + text, no_cache=True).run()
    first, second = (arm.evaluations[0] for arm in result.arms)
    assert (first.step, second.step) == (0, 0)
    assert first.usage.prompt_tokens > 0
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_the_cache_tells_harnesses_apart(project):
    plain = project.experiment(CONFIG.format(agent="", more="")).run()
    again = project.experiment(CONFIG.format(agent="", more="")).run()
    other = project.experiment(CONFIG.format(agent="", more=", agent_import_path: src.agents.twice")).run()
    cached = [result.arms[0].evaluations[0].cached for result in (plain, again, other)]
    assert cached == [0, 12, 0]


def test_an_experiment_from_before_is_finished_as_it_began(project):
    (project.root / "src/fail").touch()
    first = project.experiment(CONFIG.format(agent="", more=", agent_import_path: src.agents.twice")).run()
    assert first.arms[0].status == "failed"
    (project.root / "src/fail").unlink()
    folder = project.root / first.directory
    tree = resolved(project, first)
    for arm in tree["arms"]:
        del arm["harness"]
        arm["run"]["algorithm"]["params"]["max_turns"] = 1
    (folder / "resolved.json").write_text(json.dumps(tree), encoding="utf-8")
    result = Experiment.resume(folder, quiet=True).run()
    assert result.arms[0].status == "completed"
    last = [one for one in rollouts(project, result, "validation") if one["policy_version"] == 2]
    assert {len(one["turns"]) for one in last} == {1}
