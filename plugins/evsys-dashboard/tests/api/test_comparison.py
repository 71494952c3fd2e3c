"""Two sides task by task, and what is known, of an experiment that ran."""

import json

import pytest
from clients import running
from small_project import Project

from evsys_dashboard.local import local_dashboard
from evsys_record import open as open_record
from evsys_runtime.experiment import Experiment

ARM = """
- name: {name}
  data: {{source_kind: jsonl, path: train.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: sft, params: {{learning_rate: {rate}, steps: 6, batch_size: 4}}}}
  backend: {{kind: mock}}
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Two arms, one that learns and one that doesn't."""
    project = Project(tmp_path_factory.mktemp("ran"))
    arms = "".join(
        ARM.format(name=name, rate=rate).replace("\n", "\n  ")
        for name, rate in (("low", 1e-9), ("high", 0.05))
    )
    project.config(f"runs:{arms}\n")
    experiment = Experiment.from_yaml(project.root / "config.yaml", quiet=True)
    experiment.run()
    return experiment.record.directory


@pytest.fixture(scope="module")
def ask(experiment):
    with running(lambda: local_dashboard(experiment.parent)) as asking:
        [project] = asking("/projects")["projects"]

        def ask(path, **options):
            return asking(f"/projects/{project['name']}{path}", **options)

        for _ in range(2000):
            if ask("/experiments")["total"]:
                break
        yield ask


def sides(experiment, left="low", right="high-s0", more=""):
    return f"/comparison?left={experiment.name}/{left}&right={experiment.name}/{right}{more}"


def test_an_arm_is_compared_with_a_run_task_by_task(ask, experiment):
    found = ask(sides(experiment))
    [run] = [run for run in open_record(experiment).experiment(experiment.name).runs() if run.id == "high-s0"]
    last = list(run.evaluations())[-1]
    assert {row["task"]: row["right"] for row in found["tasks"]} == {
        task: rewards[0] for task, rewards in last.task_rewards.items()
    }
    means = [sum(row[side] for row in found["tasks"]) / len(found["tasks"]) for side in ("left", "right")]
    assert found["effect"] == pytest.approx(means[1] - means[0])
    assert found["low"] <= found["effect"] <= found["high"]
    assert (found["benchmark"], found["benchmarks"], found["equal_p"]) == ("val", ["val"], None)


def test_a_side_differs_from_itself_in_nothing(ask, experiment):
    found = ask(sides(experiment, left="high", more="&margin=0.9"))
    assert (found["effect"], {row["change"] for row in found["tasks"]}) == (0.0, {"same"})
    assert found["equal_p"] < 0.05


def test_changes_are_those_of_the_second_side(ask, experiment):
    changes = {row["task"]: row["change"] for row in ask(sides(experiment))["tasks"]}
    turned = {row["task"]: row["change"] for row in ask(sides(experiment, left="high", right="low"))["tasks"]}
    opposite = {"won": "lost", "lost": "won"}
    assert turned == {task: opposite.get(change, change) for task, change in changes.items()}


def test_both_transcripts_of_a_task_are_given(ask, experiment):
    query = sides(experiment).replace("/comparison?", "/comparison/task?") + "&benchmark=val&task=t03"
    found = ask(query)
    for side in ("left", "right"):
        [recorded] = found[side]
        assert recorded["rollout"]["task_id"] == "t03"
        assert [message["role"] for message in recorded["rollout"]["messages"]] == ["user", "assistant"]


def test_an_unknown_arm_is_refused_with_those_that_are_known(ask, experiment):
    found = ask(sides(experiment, right="hihg"), status=404)
    assert found["error"]["hint"] == "its arms: low, high"


def test_a_missing_side_is_a_malformed_request(ask):
    assert "'right' is missing" in ask("/comparison?left=a", status=400)["error"]["message"]


def test_memory_is_what_evsys_context_prints(ask, experiment):
    found = ask("/memory")["context"]
    assert (found["experiments"], found["runs"], found["project"]) == (1, 2, experiment.parents[2].name)


def test_an_experiment_on_a_final_test_is_counted_as_a_look_at_it(tmp_path):
    project = Project(tmp_path)
    project.config(
        metadata="\nmetadata:\n  hypothesis: it learns\n  success_metric: val.mean_reward\n  benchmark:\n"
        "  - {name: val, path: tasks.jsonl, max_tokens: 4, split: test}\n  allow_test_selection: true\n"
    )
    experiment = Experiment.from_yaml(project.root / "config.yaml", quiet=True)
    experiment.run()
    with running(lambda: local_dashboard(experiment.record.directory.parent)) as ask:
        [project] = ask("/projects")["projects"]
        [test] = ask(f"/projects/{project['name']}/memory")["tests"]
    assert test == {"name": "val", "experiments": [experiment.record.experiment_id]}


def test_the_selected_checkpoint_is_compared_and_not_the_last_one(ask, experiment):
    folder = experiment / "runs" / "high-s0"
    result = json.loads((folder / "run_result.json").read_text(encoding="utf-8"))
    whole = [each for each in result["evaluations"] if each["benchmark"] == "val"]
    first = min(whole, key=lambda each: each["step"])
    assert first["step"] < whole[-1]["step"]
    low = {task: [0.25] for task in first["task_rewards"]}
    selected = {**first, "step": 3, "task_rewards": low}
    result["evaluations"].insert(1, selected)
    result["run"]["selected_checkpoint"] = {
        "step": 3,
        "checkpoint": "checkpoints/step-3",
        "by": "val.mean_reward",
        "score": 0.25,
        "last_step": whole[-1]["step"],
    }
    before = (folder / "run_result.json").read_bytes()
    try:
        (folder / "run_result.json").write_text(json.dumps(result), encoding="utf-8")
        found = ask(sides(experiment))
    finally:
        (folder / "run_result.json").write_bytes(before)
    assert {row["right"] for row in found["tasks"]} == {0.25}
