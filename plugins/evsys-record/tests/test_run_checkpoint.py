"""The checkpoint of a run that is named by its folder, or as EXPERIMENT/RUN."""

import pytest
from small_project import Project

from evsys.errors import ConfigError
from evsys_record.files import read_json, write_json
from evsys_record.run_checkpoint import checkpoint_named


@pytest.fixture
def run(tmp_path):
    """The folders of all experiments and of a run that was trained for 6 steps."""
    result = Project(tmp_path).experiment().run()
    experiment = tmp_path / ".evsys/experiments" / result.experiment_id
    return experiment.parent, experiment / "runs/run-s0"


def select(folder, place):
    path = folder / "run_result.json"
    tree = read_json(path)
    chosen = {"step": 3, "checkpoint": place, "by": "val.mean_reward", "score": 1.0, "last_step": 6}
    tree["run"]["selected_checkpoint"] = chosen if place else None
    tree["run"]["final_checkpoint"] = "checkpoints/6" if place else None
    write_json(path, tree)


@pytest.mark.parametrize("name", ["last/run-s0", "trial/run-s0", "last/run"])
def test_a_run_is_named_in_its_experiment(run, name):
    experiments, folder = run
    assert checkpoint_named(name, experiments) == folder / "checkpoints/6"


def test_the_selected_checkpoint_comes_before_the_last(run):
    experiments, folder = run
    select(folder, "checkpoints/3")
    assert checkpoint_named(str(folder), experiments) == folder / "checkpoints/3"


@pytest.mark.parametrize("text", ["evsys/tiny", "gpt-5-mini", "trial", "other/run-s0"])
def test_other_names_name_no_run(run, text):
    assert checkpoint_named(text, run[0]) is None


def test_a_folder_that_is_no_run_is_left_to_others(run):
    experiments, folder = run
    assert checkpoint_named(str(folder / "checkpoints/6"), experiments) is None


def test_a_run_that_is_not_there_is_a_problem_with_a_hint(run):
    with pytest.raises(ConfigError, match="has no run 'run-s7'"):
        checkpoint_named("trial/run-s7", run[0])


def test_a_run_without_a_checkpoint_is_a_problem(run):
    experiments, folder = run
    select(folder, None)
    with pytest.raises(ConfigError, match="kept no checkpoint"):
        checkpoint_named(str(folder), experiments)
