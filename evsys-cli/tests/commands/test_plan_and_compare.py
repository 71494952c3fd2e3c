"""`evsys plan` and `evsys compare`: what they print, and their exit codes."""

from __future__ import annotations

import re

import jsonschema
import pytest

from evsys_cli.compare_lines import compare_lines
from evsys_cli.plan_lines import money_words, time_words
from evsys_runtime.experiment.estimate.results import ComparedArms, ComparedSide, Comparing
from evsys_runtime.experiment.result_schemas import result_schema


@pytest.fixture
def decided(config):
    """The config with something to decide."""
    text = config.read_text(encoding="utf-8").replace(
        "metadata:\n", "metadata:\n  success_metric: val.mean_reward\n  minimum_effect: 0.2\n"
    )
    config.write_text(text, encoding="utf-8")
    return config


def test_a_plan_tells_steps_and_the_smallest_effect_and_writes_no_record(evsys, decided):
    outcome = evsys("plan", decided)
    assert outcome.code == 0
    assert "trial: 1 arm, 1 run\n" in outcome.out
    assert "smallest detectable effect: " in outcome.out
    assert re.search(r", with at least 80 % power \(0\.8\d to [01]\.\d\d\); at best 0\.\d+\n", outcome.out)
    assert "nothing like it is on record; correlation of two arms 0 to 0.7, base rate 0 to 1\n" in outcome.out
    assert "minimum_effect of 0.2" in outcome.out
    assert outcome.out.endswith("nothing like it is on record\n")
    assert not list(decided.parent.glob(".evsys/experiments/*"))


def test_a_plan_says_that_the_budget_does_not_pay_for_it(evsys, decided):
    out = evsys("plan", decided, "--set", "budget={steps: 3, tokens: 1000000}").out
    assert "  does not fit budget.steps of 3: training 4\n" in out
    assert "  may not fit budget.tokens of 1,000,000: training " in out
    document = evsys("plan", decided, "--set", "budget={steps: 3}", "--json").json
    assert [(limit["name"], limit["fits"]) for limit in document["budget"]] == [("steps", False)]


def test_a_plan_knows_what_was_run_before_and_what_differs(evsys, decided):
    assert evsys("run", decided, "--quiet").code == 0
    assert "run was run before, with the same seeds: " in evsys("plan", decided).out
    near = evsys("plan", decided, "--set", "run.algorithm.params.steps=3").out
    assert "algorithm.params.steps 3, there 4" in near


def test_a_plan_as_a_document(evsys, decided):
    document = evsys("plan", decided, "--json").json
    jsonschema.validate(document, result_schema("plan"))
    assert document["arms"][0]["steps"] == 4
    without = evsys("plan", decided, "--no-data", "--json").json
    assert (without["arms"][0]["rows"], without["arms"][0]["steps"]) == (None, 4)


def test_a_search_is_told_by_the_arms_that_it_proposes_at_most(evsys, decided):
    text = decided.read_text(encoding="utf-8").replace("\nrun:\n", "\nbase_run:\n")
    axes = "{axes: {algorithm.params.learning_rate: {low: 1e-4, high: 1e-2, log: true}}}"
    decided.write_text(
        f"{text}search: {{kind: random, params: {{arms: 5}}}}\nmatrix: {axes}\n", encoding="utf-8"
    )
    outcome = evsys("plan", decided)
    assert (outcome.code, outcome.out.split("\n")[0]) == (
        0,
        "trial: search random, at most 5 arms, 5 runs",
    )
    assert "each arm of random" in outcome.out
    assert evsys("validate", decided).out.endswith(": valid; search random, at most 5 arms\n")
    document = evsys("validate", decided, "--json").json
    assert document["search"] == {
        "kind": "random",
        "arms": 5,
        "stops": False,
        "axes": ["algorithm.params.learning_rate"],
    }


def test_no_more_arms_of_a_search_are_side_by_side_than_there_are(evsys, decided):
    text = decided.read_text(encoding="utf-8").replace("\nrun:\n", "\nbase_run:\n")
    axes = "{axes: {algorithm.params.learning_rate: {low: 1e-4, high: 1e-2, log: true}}}"
    search = "max_concurrent_arms: 4\nsearch: {kind: random, params: {arms: 2}}"
    decided.write_text(f"{text}{search}\nmatrix: {axes}\n", encoding="utf-8")
    assert evsys("plan", decided).out.startswith("trial: search random, at most 2 arms, 2 runs, 2 at once\n")


def test_an_invalid_file_has_no_plan(evsys, decided):
    decided.write_text("version: 1\nname: trial\nrunn: {}\n", encoding="utf-8")
    assert evsys("plan", decided).code == 2


def test_two_experiments_side_by_side(evsys, decided):
    for steps in (4, 2):
        assert evsys("run", decided, "--quiet", "--set", f"run.algorithm.params.steps={steps}").code == 0
    outcome = evsys("compare", "-2", "last")
    assert outcome.code == 0
    assert "algorithm.params.steps: 4 -> 2\n" in outcome.out
    assert "val.mean_reward" in outcome.out
    document = evsys("compare", "-2", "last/run-s0", "--json").json
    jsonschema.validate(document, result_schema("compare"))
    assert [side["steps"] for side in (document["one"], document["other"])] == [4, 2]


def test_where_arms_stand_on_one_side_alone_only_those_of_both_are_said_to_be_the_same():
    sides = {
        "one": ComparedSide(name="a", experiment_id="a"),
        "other": ComparedSide(name="b", experiment_id="b"),
    }
    arms = (ComparedArms(one="x", other="x"),)
    lines = list(compare_lines(Comparing(**sides, arms=arms, only_other=("y",)), width=100))
    assert "no key of the config differs of the arms that both have" in lines
    assert "no key of the config differs" in list(compare_lines(Comparing(**sides, arms=arms), width=100))


def test_nothing_in_common_ends_with_one_and_says_why(evsys, decided):
    assert evsys("run", decided, "--quiet").code == 0
    tasks = decided.parent / "tasks.jsonl"
    tasks.write_text(tasks.read_text(encoding="utf-8").replace("say a", "say b"), encoding="utf-8")
    assert evsys("run", decided, "--quiet").code == 0
    outcome = evsys("compare", "-2", "last")
    assert outcome.code == 1
    assert "can't be compared: its tasks aren't the same on both sides" in outcome.out
    assert "nothing was scored on the same tasks" in outcome.err


def test_what_is_not_on_record_is_refused(evsys, decided):
    assert evsys("run", decided, "--quiet").code == 0
    assert evsys("compare", "last", "nowhere").code == 2
    assert evsys("compare", "last/run-s9", "last").code == 2


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "unknown"), (4.21, "4.2 s"), (600.0, "10 min"), (9000.0, "2.5 h")]
)
def test_times_have_the_unit_that_fits(seconds, words):
    assert time_words(seconds) == words


@pytest.mark.parametrize(
    ("cost", "words"), [(None, "unknown"), (0.0, "none"), (1.234, "$1.23"), (0.0042, "$0.0042")]
)
def test_money_is_never_rounded_to_nothing(cost, words):
    assert money_words(cost) == words
