"""`evsys cache`: why scorings came from the cache or didn't, what is kept, and forgetting it."""

import jsonschema
import pytest

from evsys_runtime.experiment.result_schemas import result_schema


@pytest.fixture
def ran(evsys, config):
    """The ids of an experiment, of the same again, and of one whose answers are shorter."""

    def run(*options):
        outcome = evsys("run", config, "--json", "--full", "-q", *options)
        assert outcome.code == 0, outcome.err
        return outcome.json["experiment_id"]

    return [run(), run(), run("--set", "metadata.benchmark.max_tokens=3")]


def test_it_says_what_came_from_the_cache_and_what_differed(evsys, ran):
    first, again, shorter = (evsys("cache", "why", experiment).out for experiment in ran)
    assert "run-s0: val at step 0: 0 of 12 rollouts came from the cache" in first
    assert "  nothing is kept of an entry of this name" in first
    assert again.splitlines() == [
        f"run-s0: val at step {step}: all 12 rollouts came from the cache" for step in (0, 4)
    ]
    assert "    sampling.max_tokens: 4 there, 3 here" in shorter


def test_a_record_goes_by_the_names_that_show_knows(evsys, ran):
    assert evsys("cache", "why", f"{ran[2]}/run-s0").out == evsys("cache", "why", ran[2]).out
    newest = evsys("history", "--json").json["experiments"][0]["experiment_id"]
    assert evsys("cache", "why", "last").out == evsys("cache", "why", newest).out


def test_json_has_the_published_shape_and_every_ingredient(evsys, ran):
    document = evsys("cache", "why", ran[1], "val", "--json").json
    jsonschema.validate(document, result_schema("cache_why"))
    assert [(one["step"], one["used"]) for one in document["lookups"]] == [(0, 12), (4, 12)]
    assert document["lookups"][0]["ingredients"]["agent"]["name"] == "evsys-std/chat"


def test_a_record_that_is_not_there_is_a_wrong_config(evsys, config):
    outcome = evsys("cache", "why", "nowhere")
    assert outcome.code == 2
    assert "there is no experiment 'nowhere' in " in outcome.err


def test_an_evaluation_is_named_by_its_id_or_its_folder(evsys, config, tmp_path):
    ran = evsys("run", config, "--json", "--full", "-q").json
    [run] = ran["arms"]
    checkpoint = f"{run['run_dir']}/{run['run']['final_checkpoint']}"
    evsys("eval", checkpoint, "tasks.jsonl", "-q")
    [folder] = [path for path in tmp_path.rglob(".evsys/evaluations/*") if path.is_dir()]
    by_id = evsys("cache", "why", folder.name)
    assert (by_id.code, by_id.out) == (0, evsys("cache", "why", folder).out)
    assert by_id.out.strip()


def test_a_run_without_the_cache_looked_up_nothing(evsys, config):
    experiment = evsys("run", config, "--json", "--full", "-q", "--no-cache").json["experiment_id"]
    assert evsys("cache", "why", experiment).out.strip() == "No evaluation of it used the cache."


def test_info_counts_and_clear_forgets(evsys, ran):
    known = evsys("cache", "info", "--json").json
    jsonschema.validate(known, result_schema("cache_info"))
    assert (known["scorings"], known["rollouts"]) == (4, 48)
    assert "48 rollouts of 4 scorings" in evsys("cache", "info").out
    assert evsys("cache", "clear").out == "48 rollouts deleted\n"
    assert evsys("cache", "info", "--json").json["rollouts"] == 0
