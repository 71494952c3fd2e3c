"""Commands on past experiments name the selected checkpoint of a run, and say if the last one is worse."""

import json
from pathlib import Path

import pytest
from past_lab import write_conclusion
from small_project import Project

SELECTED = {
    "step": 2,
    "checkpoint": "checkpoints/2",
    "by": "val.mean_reward",
    "score": 0.95,
    "last_step": 6,
    "last_score": 0.0,
    "looks": 3,
    "p_value": 0.0001,
    "last_is_worse": True,
}
WORDS = "step 2 of 6 (val.mean_reward 0.950, the best of 3 looks); the last checkpoint scores 0.000, worse by more than noise"


@pytest.fixture(autouse=True)
def experiment(tmp_path):
    """A run on record whose checkpoint of step 2 was selected."""
    project = Project(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(24)])
    metadata = (
        "metadata:\n  success_metric: val.mean_reward\n"
        "  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4, run_every: 2}\n"
    )
    result = project.experiment(metadata=metadata).run()
    edit(
        Path(result.arms[0].run_dir) / "run_result.json",
        lambda tree: tree["run"].update(selected_checkpoint=SELECTED),
    )
    conclusion = json.loads((Path(result.directory) / "conclusion.json").read_bytes())
    conclusion["selection"]["runs"] = {"run-s0": SELECTED}
    write_conclusion(Path(result.directory), conclusion)
    return result


def edit(path, change):
    tree = json.loads(path.read_text(encoding="utf-8"))
    change(tree)
    path.write_text(json.dumps(tree), encoding="utf-8")


@pytest.mark.parametrize(
    "command", [("why", "last"), ("why", "last/run"), ("show", "last"), ("show", "last/run-s0")]
)
def test_commands_name_the_selected_checkpoint_and_how_much_worse_the_last_is(evsys, command):
    assert WORDS in evsys(*command).out.replace("\n           ", "")


def test_show_names_the_folder_of_the_checkpoint(evsys):
    assert "checkpoint  checkpoints/2: step 2 of 6" in evsys("show", "last/run-s0").out


def test_history_has_the_selected_step_before_the_last(evsys):
    assert "2 of 6" in evsys("history", "--runs").out
    (run,) = evsys("history", "--runs", "--json").json["runs"]
    assert (run["selected_step"], run["selected_checkpoint"], run["steps"]) == (2, "checkpoints/2", 6)


def test_why_says_how_the_choice_is_kept_out_of_the_verdict(evsys):
    out = evsys("why", "last").out
    assert (
        "the best checkpoint of each run by val.mean_reward counts; one half of its tasks selects, the other"
        in out
    )


def test_next_names_the_checkpoint_of_an_arm_to_settle(evsys):
    steps = evsys("next", "--json").json["steps"]
    assert [step["checkpoint"] for step in steps if step["arm"] == "run"] == ["runs/run-s0/checkpoints/2"]
    assert "the selected checkpoint so far is runs/run-s0/checkpoints/2" in evsys("next").out
