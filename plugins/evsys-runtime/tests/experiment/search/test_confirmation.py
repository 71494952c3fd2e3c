"""The winner among several arms is tried once more, by runs that had no part in choosing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_project import forgotten

from evsys.errors import ConfigError
from evsys_record.index import Index
from evsys_record.jsonl import read_jsonl
from evsys_record.show import show_experiment
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.result_schemas import validate_result
from evsys_runtime.experiment.search.confirmation import Confirmation

METADATA = """
metadata:
  success_metric: val.mean_reward
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 2}
    - {name: final, path: tasks.jsonl, max_tokens: 2, split: test}
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
BEST = "learning_rate-0.3"
WORST = "learning_rate-0"


@pytest.fixture
def learns(project):
    """A project in which a learning rate above 0 teaches every task, and 0 none."""
    project.write("train.jsonl", [{"prompt": "say a", "completion": "x"}] * 12)
    project.tasks([(f"t{i:02d}", "say a", "x") for i in range(12)])
    return project


def confirmed(project, block="{seeds: 1}", *, text=ARMS, metadata=METADATA, extra="", **options):
    return project.experiment(text, metadata=metadata, extra=f"confirm: {block}\n{extra}", **options)


def runs(result):
    return [arm.run_id for arm in result.arms if arm.purpose == "confirm"]


def test_a_confirmed_winner_is_supported_by_its_fresh_runs_alone(learns):
    result = confirmed(learns, "{seeds: 2}").run()

    conclusion = result.conclusion
    assert conclusion.verdict == "SUPPORTED"
    assert result.status == "completed"
    assert runs(result) == [f"{BEST}-s1", f"{BEST}-s2"]
    assert conclusion.confirmed.runs == (f"{BEST}-s1", f"{BEST}-s2")
    assert (conclusion.confirmed.seeds, conclusion.confirmed.benchmark) == (2, "val")
    assert conclusion.confirmed.comparison.outcome == "win"
    assert conclusion.confirmed.comparison.n_seeds == 2
    assert [c.n_seeds for c in conclusion.comparisons] == [1, 1, 1]
    assert conclusion.reason == (
        f"{BEST}, the best of 3 arms, beats base_model when retrained; "
        "enough to choose this checkpoint, not to expect the same of another run of its recipe"
    )


def test_the_record_says_what_was_decided_and_the_page_says_it_in_words(learns):
    result = confirmed(learns).run()

    folder = Path(result.directory)
    (line,) = read_jsonl(folder / "proposals.jsonl")
    assert line["source"] == "confirm"
    assert (line["proposal"]["winner"], line["proposal"]["among"]) == (BEST, 3)
    tree = json.loads((folder / "conclusion.json").read_text(encoding="utf-8"))
    validate_result(tree, "conclusion")
    assert tree["confirmed"]["comparison"]["p_corrected"] == tree["confirmed"]["comparison"]["p_value"]
    page = (folder / "conclusion.md").read_text(encoding="utf-8")
    assert (
        f"Confirmation runs, which decide: {BEST} retrained with 1 seed, compared with untrained weights"
        in page
    )
    assert f"| {BEST}, once more | 1.000" in page
    assert json.loads((folder / "experiment.json").read_text(encoding="utf-8"))["arms"][-1] == {
        "run_id": f"{BEST}-s1",
        "arm": BEST,
        "repeat": 1,
        "purpose": "confirm",
    }


def test_winner_and_baseline_arm_are_both_trained_anew_after_the_repeats(learns):
    metadata = METADATA.replace("benchmark:\n", f"baseline: {WORST}\n  benchmark:\n", 1)
    result = confirmed(learns, "{seeds: 2}", metadata=metadata, extra="n_repeats: 2\n").run()

    assert runs(result) == [f"{BEST}-s2", f"{WORST}-s2", f"{BEST}-s3", f"{WORST}-s3"]
    assert result.conclusion.verdict == "SUPPORTED"
    assert result.conclusion.confirmed.comparison.reason == "2 training runs per recipe"


def test_an_entry_that_is_kept_for_the_confirmation_is_scored_for_its_runs_alone(learns):
    result = confirmed(learns, "{seeds: 1, benchmark: final}").run()

    scored = {arm.run_id: {e.benchmark for e in arm.evaluations} for arm in result.arms}
    assert scored.pop(f"{BEST}-s1") == {"final"}
    assert set(map(frozenset, scored.values())) == {frozenset({"val"})}
    assert result.conclusion.test_looks == {"final": 2}
    assert result.conclusion.confirmed.metric == "final.mean_reward"
    assert result.conclusion.verdict == "SUPPORTED"
    page = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert "not scored" not in page


def test_nothing_is_confirmed_and_nothing_is_spent_where_no_arm_wins(learns):
    text = ARMS.replace("[0.3, 0.2, 0.0]", "[0.0, 1.0e-9]")
    result = confirmed(learns, text=text).run()

    assert runs(result) == []
    assert result.conclusion.confirmed is None
    assert result.conclusion.verdict == "INCONCLUSIVE"
    assert not (Path(result.directory) / "proposals.jsonl").exists()


def test_where_one_arm_is_compared_there_is_nothing_to_choose_and_that_is_said(learns):
    result = confirmed(learns, text=ARMS.replace("[0.3, 0.2, 0.0]", "[0.3]")).run()

    assert runs(result) == []
    assert result.conclusion.verdict == "SUPPORTED"
    assert any("only one arm is compared" in warning for warning in result.warnings)


def test_a_dry_run_confirms_nothing(learns):
    assert runs(confirmed(learns, dry=True).run()) == []


def test_runs_that_the_budget_doesnt_admit_leave_a_candidate(learns):
    result = confirmed(learns, extra="budget: {arms: 3}\n").run()

    assert (result.status, result.exit_code) == ("budget_stopped", 5)
    assert result.conclusion.verdict == "CANDIDATE"
    assert result.conclusion.reason == (
        f"{BEST} was the best of 3 arms, but it wasn't confirmed: {BEST}-s1: budget_stopped"
    )
    again = Experiment.resume(result.directory, overrides=["budget.arms=4"], quiet=True).run()
    assert again.conclusion.verdict == "SUPPORTED"


def test_a_fresh_run_that_fails_leaves_a_candidate_that_says_why(learns, monkeypatch):
    learns.code(
        "algorithms",
        "from evsys_sdk import SFT, register_algorithm\n"
        "@register_algorithm('shaky')\nclass Shaky(SFT):\n"
        "    async def train(self, ctx):\n"
        "        if ctx.repeat:\n            raise RuntimeError('out of luck')\n"
        "        return await super().train(ctx)\n",
    )
    result = confirmed(learns, text=ARMS.replace("kind: sft", "kind: shaky")).run()

    assert (result.status, result.exit_code) == ("completed", 1)
    assert result.conclusion.verdict == "CANDIDATE"
    assert "it wasn't confirmed" in result.conclusion.reason
    assert "out of luck" in result.conclusion.reason


@pytest.mark.parametrize("cut", ["before the decision", "behind it"])
def test_a_kill_between_choosing_and_confirming_changes_nothing(learns, monkeypatch, cut):
    whole = forgotten(confirmed(learns).run())

    def cut_off(*_arguments):
        raise KeyboardInterrupt

    first = confirmed(learns)
    with monkeypatch.context() as patch:
        patch.setattr(Confirmation, "propose" if cut == "before the decision" else "arms", cut_off)
        with pytest.raises(KeyboardInterrupt):
            first.run()
    resumed = Experiment.resume(first.record.directory, quiet=True).run()

    assert resumed.conclusion.confirmed == whole.conclusion.confirmed
    assert resumed.conclusion.comparisons == whole.conclusion.comparisons
    assert len(list(read_jsonl(first.record.directory / "proposals.jsonl"))) == 1


@pytest.mark.parametrize(
    ("block", "metadata", "words"),
    [
        ("{benchmark: finale}", METADATA, "did you mean 'final'"),
        ("{}", METADATA.replace("success_metric: val", "allow_test_selection: true\n  success_metric: final"), "chooses the winner and is a 'test' entry"),
        ("{benchmark: final}", METADATA.replace("split: test", "run_every: 2"), "scored once"),
        ("{benchmark: final}", METADATA.replace("split: test", "metrics: [pass_rate]"), "has no metric 'mean_reward'"),
        ("{seeds: -1}", METADATA, "must be >= 0"),
        ("{}", "", "'confirm' needs a success_metric"),
    ],
)  # fmt: skip
def test_a_confirmation_that_cant_be_is_refused_before_anything_is_trained(learns, block, metadata, words):
    with pytest.raises(ConfigError) as refused:
        confirmed(learns, block, metadata=metadata)
    assert words in str(refused.value)


def test_without_seeds_nothing_is_trained_and_the_trained_models_are_scored_once_more(learns):
    metadata = METADATA.replace("benchmark:\n", f"baseline: {WORST}\n  benchmark:\n", 1)
    block = "{seeds: 0, benchmark: final}"
    result = confirmed(learns, block, metadata=metadata, extra="n_repeats: 2\n").run()

    assert runs(result) == [f"{BEST}-s2", f"{WORST}-s2", f"{BEST}-s3", f"{WORST}-s3"]
    assert result.status == "completed"
    again = {arm.run_id: arm for arm in result.arms if arm.purpose == "confirm"}
    assert {arm.usage.trained_tokens for arm in again.values()} == {0}
    assert {(e.benchmark, e.step) for arm in again.values() for e in arm.evaluations} == {("final", 8)}
    assert len({arm.identity for arm in result.arms}) == len(result.arms)
    assert result.conclusion.verdict == "SUPPORTED"
    assert result.conclusion.reason == (
        f"{BEST}, the best of 2 arms, beats {WORST} when evaluated again; "
        "enough to choose this checkpoint, not to expect the same of another run of its recipe"
    )


def test_without_seeds_untrained_weights_are_scored_once_more_too_with_seeds_of_their_own(learns):
    metadata = METADATA.replace("max_tokens: 2}", "max_tokens: 2, num_samples: 2, run_every: 4}", 1)
    result = confirmed(learns, "{seeds: 0}", metadata=metadata).run()

    again = next(arm for arm in result.arms if arm.purpose == "confirm")
    assert [(e.benchmark, e.step, e.status) for e in again.evaluations] == [
        ("val", 0, "completed"),
        ("val", 8, "completed"),
    ]
    assert result.conclusion.verdict == "SUPPORTED"


def test_scoring_once_more_is_resumed_after_a_kill(learns, monkeypatch):
    block = "{seeds: 0, benchmark: final}"
    whole = forgotten(confirmed(learns, block).run())

    def cut_off(*_arguments):
        raise KeyboardInterrupt

    first = confirmed(learns, block)
    with monkeypatch.context() as patch:
        patch.setattr(
            "evsys_runtime.experiment.arm.phases.taken_as_trained",
            lambda _s, arm, taken: cut_off() if arm.weights_of else taken,
        )
        with pytest.raises(KeyboardInterrupt):
            first.run()
    resumed = Experiment.resume(first.record.directory, quiet=True).run()

    assert resumed.status == "completed"
    assert resumed.conclusion.confirmed == whole.conclusion.confirmed


def test_greedy_answers_to_the_same_tasks_are_no_second_trial(learns):
    with pytest.raises(ConfigError, match="would give 'val' the same answers again"):
        confirmed(learns, "{seeds: 0}")


def test_history_and_show_know_fresh_runs_as_runs_of_their_arm(learns):
    result = confirmed(learns).run()
    with Index(Path(result.directory).parent) as index:
        found = show_experiment(index, result.experiment_id)
    fresh = next(run.past for run in found.runs if run.past.run_id == f"{BEST}-s1")
    assert (fresh.arm, fresh.repeat, fresh.status) == (BEST, 1, "completed")
    assert fresh.algorithm.endswith("sft")
    assert found.conclusion.confirmed == result.conclusion.confirmed
