"""What judging costs is in every sum, apart from what the model costs, and never looks like more than is known."""

import json
from pathlib import Path

import pytest
from small_project import METADATA, Project

from evsys.types import Usage

JUDGES = """
from evsys import register_verifier
from evsys.types import NoScore, Score, Usage


@register_verifier("paid")
class Paid:
    reward_range = (0.0, 1.0)
    free = False
    warnings = ("its judge is on trial",)

    def __call__(self, model_output, expected, params):
        if expected == "silent":
            return NoScore(reason="says nothing", usage=Usage(prompt_tokens=3, cost_usd=0.25))
        if expected == "unpriced":
            return Score(value=1.0, usage=Usage(prompt_tokens=3))
        return Score(value=float(model_output == expected), usage=Usage(prompt_tokens=3, cost_usd=0.5))
"""


def with_tasks(project: Project, *odd: str):
    project.code("judges", JUDGES)
    expected = [*odd, *["a"] * (24 - len(odd))]
    project.tasks([(f"t{i:02d}", "say a", one) for i, one in enumerate(expected)], verifier="paid")
    return project.experiment()


@pytest.fixture
def result(project: Project):
    return with_tasks(project, "silent", "unpriced", "unpriced").run()


def test_a_scoring_has_what_judging_took_beside_what_the_model_took(result):
    for evaluation in result.arms[0].evaluations:
        assert evaluation.judged == Usage(prompt_tokens=72, cost_usd=0.25 + 21 * 0.5, unpriced=2)
        assert (evaluation.usage.cost_usd, evaluation.usage.unpriced) == (0.0, 0)  # `mock` costs nothing
        assert (evaluation.scored, evaluation.no_score) == (23, 1)


def test_sums_of_runs_and_of_the_experiment_have_both_and_say_how_much_is_unknown(result):
    count = len(result.arms[0].evaluations)
    for usage in (result.arms[0].usage, result.usage, result.conclusion.usage):
        assert (usage.cost_usd, usage.unpriced) == (count * 10.75, count * 2)
        assert usage.trained_tokens > 0
    page = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert f"at least ${count * 10.75:.4f} ({count * 2} without a known price)" in page


def test_a_run_that_costs_nothing_says_so(project: Project):
    result = project.experiment().run()
    assert (result.usage.cost_usd, result.usage.unpriced) == (0.0, 0)
    assert ", no cost, " in (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")


def test_the_record_of_a_rollout_has_what_judging_it_took(result):
    path = Path(result.directory) / "runs/run-s0/validation/rollouts.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    spent = {line["rollout"]["task_id"]: line["rollout"]["score"]["usage"]["cost_usd"] for line in lines}
    assert [spent[name] for name in ("t00", "t01", "t03")] == [0.25, None, 0.5]


def test_what_a_verifier_warns_of_is_told_before_the_run_and_kept_with_each_scoring(project: Project):
    experiment = with_tasks(project)
    assert "its judge is on trial" in experiment.plan.warnings
    result = experiment.run()
    assert result.warnings.count("its judge is on trial") == 1
    assert all("its judge is on trial" in one.warnings for one in result.arms[0].evaluations)


def test_a_price_that_is_old_is_warned_of_once_before_anything_is_paid_for(project: Project):
    (project.root / "prices.toml").write_text(
        "[models.m]\nprompt = 1\ncompletion = 1\nas_of = 2020-01-31\nsource = 'a page'\n", encoding="utf-8"
    )
    client = "{kind: openai_compatible, params: {model: m, base_url: 'http://127.0.0.1:9/v1'}}"
    undecided = METADATA.replace("  success_metric: val.mean_reward\n", "")
    metadata = f"{undecided.rstrip()}\n    models: [{client}]\n    inference: {client}\n"
    warnings = [
        text for text in project.experiment(metadata=metadata).plan.warnings if "the price of" in text
    ]
    assert len(warnings) == 1
    assert "'m'" in warnings[0]
    assert "is of 2020-01-31" in warnings[0]
