"""The budget of a project over its experiments: reserved before a launch, and read from the record after."""

from __future__ import annotations

import json

import pytest

from evsys_record.experiment_record import ExperimentRecord


@pytest.fixture
def limited(evsys, config):
    """Set the budget of the project; returns how to run an experiment in it."""

    def run(limits, *words):
        (config.parent / "pyproject.toml").write_text(
            f"[tool.evsys]\nbudget = {{{limits}}}\n", encoding="utf-8"
        )
        return evsys("run", str(config), "-q", "--json", *words)

    return run


def records(config):
    folder = config.parent / ".evsys" / "experiments"
    return [path.name for path in folder.glob("2*")] if folder.exists() else []


def test_one_experiment_more_than_the_project_allows_is_refused_and_leaves_no_record(config, limited):
    assert limited("experiments = 1").code == 0
    outcome = limited("experiments = 1")
    assert outcome.code == 2
    assert "the project's budget of experiments is spent: 1 of 1 are on record" in outcome.err
    assert "raise budget.experiments in [tool.evsys] of pyproject.toml" in outcome.err
    assert len(records(config)) == 1
    assert limited("experiments = 2").code == 0
    assert limited("experiments = 2", "--dry").code == 0


def test_a_limit_above_what_is_left_is_refused(config, limited):
    outcome = limited("seconds = 60", "--set", "budget.wall_seconds=90")
    assert outcome.code == 2
    message = "budget.wall_seconds is 90 s, and the project's budget leaves 60 s: 0 s of 60 s spent"
    assert message in outcome.err
    assert "lower budget.wall_seconds, or raise" in outcome.err
    assert not records(config)


def test_an_experiment_without_a_limit_gets_what_is_left(evsys, config, limited):
    outcome = limited("seconds = 3600, money = 5", "--full")
    assert outcome.code == 0
    assert "the project's budget leaves $5.00 for this experiment (budget.usd)" in outcome.json["warnings"]
    facts = ExperimentRecord.open(config.parent / ".evsys/experiments" / outcome.json["experiment_id"]).facts
    assert facts["budget"]["limits"] == {
        "usd": 5.0,
        "tokens": None,
        "wall_seconds": 3600.0,
        "steps": None,
        "arms": None,
    }


def test_what_was_used_is_spent_and_shown(evsys, config, limited):
    seconds = limited("seconds = 3600, experiments = 3", "--full").json["seconds"]
    known = evsys("context", "--json").json["budget"]
    assert known["experiments"] == {"limit": 3.0, "spent": 1.0, "reserved": 0.0}
    assert known["wall_seconds"]["spent"] == pytest.approx(seconds, abs=0.01)
    assert "project budget left: 2 of 3 experiments" in evsys("context").out
    project = {each["name"]: each for each in evsys("plan", str(config), "--json").json["project"]}
    assert project["wall_seconds"]["limit"] == pytest.approx(3600 - seconds, abs=0.01)
    assert "the project's wall_seconds left" in evsys("plan", str(config)).out


def test_an_experiment_that_runs_has_reserved_its_limits(evsys, config, limited):
    other = ExperimentRecord.create(
        config.parent / ".evsys" / "experiments",
        "other",
        config.read_bytes(),
        facts={"arms": [], "budget": {"limits": {"usd": 4.0}, "spent": {"usd": 1.0}, "runs": {}}},
    )
    with other.lock:
        outcome = limited("money = 5", "--set", "budget.usd=2")
        assert outcome.code == 2
        assert "leaves $1.00: $0.0000 of $5.00 spent, $4.00 reserved by running experiments" in outcome.err
        assert limited("money = 5", "--set", "budget.usd=0.5").code == 0
    (path,) = (config.parent / ".evsys" / "experiments").glob("*-other/experiment.json")
    tree = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**tree, "created": "2020-01-01T00:00:00+00:00"}), encoding="utf-8")
    assert (
        limited("money = 5", "--set", "budget.usd=4").code == 0
    )  # its process is gone: what it spent counts


def test_a_misspelt_setting_of_the_project_is_an_error(config, limited):
    outcome = limited("experimets = 3")
    assert outcome.code == 2
    assert "did you mean 'experiments'" in outcome.err
