"""Without a number in the file, a winner is confirmed with as many seeds as the noise on record asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evsys.types import Comparison, RunDeviation
from evsys_record import marks
from evsys_record.index import Index
from evsys_record.jsonl import read_jsonl
from evsys_record.retraction import retract
from evsys_runtime.audit.auditing import audit_experiment
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.estimate.plan import plan_experiment
from evsys_runtime.experiment.search.confirm_seeds import UNKNOWN_NOISE, confirm_seeds
from evsys_runtime.experiment.state import arm_sources
from evsys_runtime.experiment.verdict.question import Question

METADATA = """
metadata:
  success_metric: val.mean_reward
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 2}
"""
ARMS = """
matrix:
  axes:
    algorithm.params.learning_rate: [0.3, 0.2, 0.0]
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 8, batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
"""
BEFORE = ARMS.replace("[0.3, 0.2, 0.0]", "[0.3]")
BEST = "learning_rate-0.3"


@pytest.fixture
def learns(project):
    project.write("train.jsonl", [{"prompt": "say a", "completion": "x"}] * 12)
    project.tasks([(f"t{i:02d}", f"say a, take {i}", "x") for i in range(12)])
    return project


@pytest.fixture
def known(learns, monkeypatch):
    """Four runs of a recipe are on record, which count although the mock made them."""
    monkeypatch.setattr(marks, "DISQUALIFYING", marks.DISQUALIFYING - {"simulated"})
    return learns.experiment(BEFORE, metadata=METADATA, extra="n_repeats: 4\n").run()


def confirming(project, block="{}", extra=""):
    return project.experiment(ARMS, metadata=METADATA, extra=f"confirm: {block}\n{extra}")


def fresh(result):
    return [arm.run_id for arm in result.arms if arm.purpose == "confirm"]


def tree(result, name):
    return json.loads((Path(result.directory) / name).read_text(encoding="utf-8"))


def test_runs_that_hardly_differ_are_confirmed_by_three_and_the_source_is_stated(learns, known):
    result = confirming(learns).run()

    confirmed = result.conclusion.confirmed
    assert (confirmed.seeds, fresh(result)) == (3, [f"{BEST}-s1", f"{BEST}-s2", f"{BEST}-s3"])
    assert "as many as show the expected effect of +" in confirmed.seeds_reason
    assert confirmed.seeds_reason.endswith(f"known from 4 runs of {known.experiment_id}")
    assert tree(result, "resolved.json")["confirm"]["seeds"] == 3
    assert tree(result, "conclusion.json")["confirmed"]["seeds_reason"] == confirmed.seeds_reason
    page = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert f"retrained with 3 seeds ({confirmed.seeds_reason})" in page
    assert audit_experiment(Path(result.directory)).passed


def test_where_nothing_is_known_there_are_four(learns):
    result = confirming(learns).run()

    confirmed = result.conclusion.confirmed
    assert (confirmed.seeds, len(fresh(result))) == (4, 4)
    assert confirmed.seeds_reason == "the default, since no run-to-run deviation of similar runs is on record"


def test_a_number_in_the_file_is_kept(learns, known):
    result = confirming(learns, "{seeds: 2}").run()

    assert (result.conclusion.confirmed.seeds, result.conclusion.confirmed.seeds_reason) == (2, None)


@pytest.mark.parametrize("written", [True, False])
def test_a_resumed_experiment_keeps_the_number_that_was_chosen(learns, known, monkeypatch, written):
    """Whether it was cut off before or after resolved.json had it, and although nothing is known any more."""
    first = confirming(learns)
    resolve = arm_sources._resolve

    def cut_off(session, added):
        if written:
            resolve(session, added)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(arm_sources, "_resolve", cut_off)
        with pytest.raises(KeyboardInterrupt):
            first.run()
    retract(Path(known.directory), "the rows were wrong")
    resumed = Experiment.resume(first.record.directory, quiet=True).run()

    assert resumed.conclusion.confirmed.seeds == 3
    assert fresh(resumed) == [f"{BEST}-s1", f"{BEST}-s2", f"{BEST}-s3"]
    assert tree(resumed, "resolved.json")["confirm"]["seeds"] == 3
    (line,) = read_jsonl(first.record.directory / "proposals.jsonl")
    assert line["proposal"]["seeds_reason"] == resumed.conclusion.confirmed.seeds_reason


def planned(project, block="{}"):
    plan = load_experiment(project.config(ARMS, metadata=METADATA, extra=f"confirm: {block}\n"))
    with Index(plan.project_root / plan.experiment.output_dir) as index:
        index.refresh()
        return plan_experiment(plan, index).confirm


def test_a_plan_states_the_range_its_source_and_what_the_most_seeds_take(learns, known):
    confirm = planned(learns)
    assert (confirm.fewest_seeds, confirm.seeds, confirm.runs, confirm.steps) == (3, 8, 8, 64)
    assert confirm.design.runs == 8
    assert confirm.seeds_reason.startswith("as many as show the winner's expected effect with 80 % power")
    assert confirm.seeds_reason.endswith(f"known from 4 runs of {known.experiment_id}")
    given = planned(learns, "{seeds: 2}")
    assert (given.fewest_seeds, given.seeds, given.seeds_reason) == (2, 2, None)


def test_a_plan_without_a_known_deviation_states_the_default(learns):
    confirm = planned(learns)
    assert (confirm.fewest_seeds, confirm.seeds, confirm.seeds_reason) == (4, 4, UNKNOWN_NOISE)


def won(effect, error=0.02, **values):
    return Comparison(arm="a", outcome="win", effect=effect, standard_error=error, n_tasks=100, **values)


def deviation(size, sampling=0.0):
    return RunDeviation(
        metric="val.m",
        standard_deviation=size,
        sampling_deviation=sampling,
        freedom=4.0,
        runs=8,
        experiments=("x",),
        recipes=(),
    )


def seeds(winner, known, *, affordable=lambda _: True, minimum=0.0):
    question = Question(
        benchmark="val", metric="m", direction="max", task_value=lambda _: None, baseline="b", margin=minimum
    )
    return confirm_seeds(question, winner, known, sides=2, tasks=100, affordable=affordable)


def test_more_noise_asks_for_more_seeds_up_to_eight():
    assert [seeds(won(0.1), deviation(size))[0] for size in (0.0, 0.04, 0.045, 0.05, 0.3)] == [3, 5, 6, 7, 8]
    _, reason = seeds(won(0.1), deviation(0.3))
    assert "which is too few to show the expected effect of +0.1" in reason


def test_the_shrunken_effect_counts_beyond_the_margin_and_sampling_is_no_deviation_between_runs():
    plain, _ = seeds(won(0.12), deviation(0.03))
    assert seeds(won(0.3, shrunken_effect=0.12), deviation(0.03))[0] == plain
    assert seeds(won(0.12), deviation(0.03), minimum=0.04)[0] > plain
    assert seeds(won(0.12), deviation(0.03, sampling=0.03))[0] == 3


def test_a_budget_limits_the_number_to_three_at_least():
    number, reason = seeds(won(0.1), deviation(0.05), affordable=lambda n: n <= 5)
    assert (number, "the budget doesn't pay for 7" in reason) == (5, True)
    assert seeds(won(0.1), deviation(0.05), affordable=lambda _: False)[0] == 3
