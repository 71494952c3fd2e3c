"""`evsys new-experiment --from`: the file of an experiment on record becomes that of its child."""

from __future__ import annotations

import pytest

from evsys_runtime.config.document import load


@pytest.fixture
def parent(evsys, config):
    text = config.read_text(encoding="utf-8")
    config.write_text(f"# The first try.\n{text}", encoding="utf-8")
    assert evsys("run", str(config), "-q", "--set", "run.algorithm.params.batch_size=2").code == 0
    (record,) = (config.parent / ".evsys" / "experiments").iterdir()
    return record.name


def made(config):
    (path,) = config.parent.glob("experiments/*/config.yaml")
    return path


def test_a_child_has_the_parents_values_those_of_its_launch_and_the_new_ones(evsys, config, parent):
    outcome = evsys(
        *("new-experiment", "Faster", "--from", "last"),
        *(
            "--set",
            "run.algorithm.params.learning_rate=0.1",
            "--set",
            "metadata.hypothesis=Faster is better.",
        ),
    )
    assert outcome.code == 0, outcome.err
    tree, before = load(made(config)).tree, load(config).tree
    params = {**before["run"]["algorithm"]["params"], "batch_size": 2, "learning_rate": 0.1}
    assert tree["run"]["algorithm"]["params"] == params
    assert tree["name"] == "faster"
    assert tree["metadata"]["parent_experiment_id"] == parent
    assert tree["metadata"]["hypothesis"] == "Faster is better."
    assert "# The first try." in made(config).read_text(encoding="utf-8")
    assert evsys("run", str(made(config)), "-q").code == 0
    assert evsys("show", "last", "--json").json["ancestors"] == [parent]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "run.algorithm.params.learnin_rate=0.1"), "did you mean 'learning_rate'"),
        (("--set", "metadata"), "it has no '='"),
        (("--set", "run.algorithm.params.steps=-1"), "steps"),
    ],
)
def test_a_child_that_is_not_valid_is_not_written(evsys, config, parent, words, message):
    outcome = evsys("new-experiment", "next", "--from", parent, *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert not (config.parent / "experiments").exists()


def test_a_file_that_is_there_is_not_replaced(evsys, config, parent):
    assert evsys("new-experiment", "next", "--from", parent).code == 0
    text = made(config).read_text(encoding="utf-8")
    outcome = evsys("new-experiment", "next", "--from", parent, "--set", "run.algorithm.params.steps=2")
    assert outcome.code == 2
    assert "already exists; choose another name" in outcome.err
    assert made(config).read_text(encoding="utf-8") == text


def test_values_are_set_in_the_file_of_an_experiment_alone(evsys, config):
    outcome = evsys("new-experiment", "next", "--set", "run.algorithm.params.steps=2")
    assert (outcome.code, "name that with --from" in outcome.err) == (2, True)


def test_an_experiment_that_is_not_on_record_is_refused(evsys, config, parent):
    outcome = evsys("new-experiment", "next", "--from", "tria")
    assert outcome.code == 2
    assert "there is no experiment 'tria'" in outcome.err
