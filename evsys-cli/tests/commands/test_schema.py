"""`evsys schema`: how what can be named here is configured."""

from __future__ import annotations

import re


def test_it_prints_help_and_source_of_each_parameter(evsys):
    schema = evsys("schema", "algorithm", "sft").json
    assert "learning_rate" in schema["properties"]
    assert schema["additionalProperties"] is False
    assert all(entry.get("description") for entry in schema["properties"].values())


def test_it_shows_the_bands_in_which_an_algorithm_wants_its_metrics(evsys):
    band = evsys("schema", "algorithm", "rl").json["x-health"]["error_share"]
    assert (band["low"], band["high"], band["lasting"]) == (None, 0.1, 5)
    assert "crash" in band["why"]
    assert "x-health" not in evsys("schema", "backend", "mock").json


def test_the_schema_of_the_experiment_covers_the_installed_plugins(evsys):
    assert '"const": "sft"' in evsys("schema", "--experiment").out


def test_an_unknown_plugin_says_what_is_close(evsys):
    outcome = evsys("schema", "algorithm", "stf")
    assert outcome.code == 3
    assert "sft" in outcome.err


def test_an_unknown_kind_says_what_is_close(evsys):
    outcome = evsys("schema", "verifierr")
    assert outcome.code == 2
    assert "unknown kind 'verifierr'; did you mean 'verifier'?" in outcome.err


def test_the_plugins_of_the_project_are_there(evsys, project):
    assert evsys("schema", "metric", "half").json["title"] == "half"
    assert "half" in evsys("schema", "metric").out.splitlines()
    outcome = evsys("schema", "--experiment")
    assert '"const": "half"' in outcome.out
    assert outcome.json["title"] == "evsys experiment"
    assert outcome.err == ""  # the module was imported, and has printed, before


def test_broken_code_of_the_project_is_named_beside_what_was_asked_for(evsys, project):
    project.write("src/broken.py", "1 / 0")
    outcome = evsys("schema", "metric", "mean_reward")
    assert outcome.code == 0
    assert outcome.json["title"] == "mean_reward"
    assert "src/broken.py:1: " in outcome.err
    for arguments in (["--experiment"], ["metric"], ["metric", "half"]):
        outcome = evsys("schema", *arguments)
        assert outcome.code == 3
        assert re.search(r"The project's own plugins are missing: .*src/broken\.py:1: ", outcome.err)


def test_kinds_are_listed_without_looking_at_the_project(evsys, project):
    project.write("src/broken.py", "1 / 0")
    outcome = evsys("schema")
    assert outcome.code == 0
    assert "metric" in outcome.out.splitlines()
    assert outcome.err == ""
