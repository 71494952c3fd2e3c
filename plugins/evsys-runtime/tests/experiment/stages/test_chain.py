"""Arms in stages: each begins with the weights that the one before ended with, and the last one's scores are the arm's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from small_project import METADATA

from evsys.types import RunResult
from evsys_record.files import read_json
from evsys_record.index import Index
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.estimate.plan import plan_experiment

BARE = "\n  model: {name: evsys/tiny}\n  backend: {kind: mock}\n"
STAGES = """stages:
- name: one
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  algorithm: {kind: sft, params: {learning_rate: 0.05, steps: 4, batch_size: 4, lora_rank: 4}}
- name: two
  data: {path: more.jsonl, transforms: [{kind: jsonl_to_chat}]}
  algorithm: {kind: sft, params: {learning_rate: 0.02, steps: 3, batch_size: 4, lora_rank: 4}}
"""


@pytest.fixture
def staged(project):
    """Makes an experiment in two stages: `staged(("steps: 3", "steps: 5"))` with some of its text replaced."""
    project.write("more.jsonl", [{"prompt": f"say {c}", "completion": c * 2} for c in "ijklmnop"])

    def made(*changes, metadata=METADATA, text=None, extra="", **options):
        body = f"{STAGES}{text or f'run:{BARE}'}"
        for old, new in changes:
            assert old in body
            body = body.replace(old, new)
        return project.experiment(body, metadata=metadata, extra=extra, **options)

    return made


def facts(result, run_id):
    return read_json(Path(result.directory) / "runs" / run_id / "run.json")


def manifest(result, run):
    return read_json(
        Path(result.directory) / "runs" / run.run_id / run.run.final_checkpoint / "manifest.json"
    )


def weights(result, run):
    return {name: each["sha256"] for name, each in manifest(result, run)["files"].items()}


def test_a_stage_begins_with_the_weights_that_the_one_before_ended_with(staged):
    result = staged().run()

    first, second = result.arms
    assert [arm.run_id for arm in result.arms] == ["run-s0.1-one", "run-s0.2-two"]
    assert [(arm.status, arm.run.steps, arm.stage) for arm in result.arms] == [
        ("completed", 4, "1-one"),
        ("completed", 3, "2-two"),
    ]
    begun = facts(result, second.run_id)
    assert begun["begins_with"] == {"run_id": first.run_id, "step": 4, "files": weights(result, first)}
    assert "begins_with" not in facts(result, first.run_id)
    assert (begun["stage"], begun["after"]) == ("2-two", first.run_id)
    started = manifest(result, second)["manifest"]["model"]["init_from_checkpoint"]
    assert started.endswith(f"runs/{first.run_id}/{first.run.final_checkpoint}")


def test_two_stages_come_to_what_two_experiments_do(project, staged):
    whole = staged().run()
    first, second = whole.arms
    checkpoint = f"{whole.directory}/runs/{first.run_id}/{first.run.final_checkpoint}"
    one = STAGES.partition("- name: one")[2].partition("- name: two")[0]
    alone = project.experiment(f"run:{BARE}{one}").run()
    two = STAGES.partition("- name: two")[2]
    model = BARE.replace("evsys/tiny", f"evsys/tiny, init_from_checkpoint: {checkpoint}")
    behind = project.experiment(f"run:{model}{two}").run()

    assert weights(alone, alone.arms[0]) == weights(whole, first)
    # Its seeds are those of a first stage, so its rows come in another order than they do in a second one.
    assert facts(behind, "run-s0")["order"] != facts(whole, second.run_id)["order"]
    assert behind.arms[0].run.steps == second.run.steps


def test_stages_draw_by_seeds_of_their_own_that_arms_share(staged):
    same = ("path: more.jsonl", "path: train.jsonl")
    axes = f"base_run:{BARE}matrix: {{axes: {{'stages[1].algorithm.params.learning_rate': [0.02, 0.03]}}}}"
    result = staged(same, text=axes).run()

    orders = [facts(result, arm.run_id)["order"]["digest"] for arm in result.arms]
    assert orders[0] == orders[2]
    assert orders[1] == orders[3]
    assert orders[0] != orders[1]


def test_the_verdict_is_about_the_last_stage_and_the_weights_before_the_first(staged):
    result = staged().run()

    scored = [[(e.step, e.benchmark) for e in arm.evaluations] for arm in result.arms]
    assert scored == [[(0, "val"), (4, "val")], [(3, "val")]]
    [compared] = result.conclusion.comparisons
    last = result.arms[1].evaluations[0].metrics["mean_reward"].value
    untrained = result.arms[0].evaluations[0].metrics["mean_reward"].value
    assert (compared.arm, compared.before, compared.after) == ("run", untrained, last)
    assert compared.n_seeds == 1
    assert result.usage.trained_tokens == sum(arm.usage.trained_tokens for arm in result.arms)
    assert result.status == "completed"
    assert result.conclusion.forgetting == ()


def test_looks_at_a_test_entry_are_counted_in_every_stage(staged):
    test = METADATA + "  allow_test_selection: true\n"
    result = staged(metadata=test.replace("name: val", "name: val\n    split: test")).run()
    assert result.conclusion.test_looks == {"val": 3}


def test_the_tables_have_a_line_a_stage(staged):
    result = staged(extra="n_repeats: 2\n").run()
    text = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    lines = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert lines == ["val (val), 2 runs", "---", "untrained", "run, after 1-one", "run, after 2-two"]


def test_a_stage_that_fails_ends_the_arm_and_the_reason_is_its_own(project, staged):
    project.code(
        "algorithms",
        "from evsys_sdk import SFT, register_algorithm\n"
        "@register_algorithm('breaks')\nclass Breaks(SFT):\n"
        "    async def build_batch(self, step_idx):\n        raise RuntimeError('it broke')\n",
    )
    result = staged(("sft, params: {learning_rate: 0.05", "breaks, params: {learning_rate: 0.05")).run()

    assert [arm.status for arm in result.arms] == ["failed", "skipped"]
    assert result.arms[1].run.stop_reason == "it continues from run-s0.1-one, which is failed"
    [compared] = result.conclusion.comparisons
    assert compared.outcome == "unscored"
    assert "run-s0.1-one: algorithm 'breaks' failed: RuntimeError: it broke" in compared.reason
    assert result.status == "failed"


def test_an_arm_whose_last_stage_fails_has_no_score_of_an_earlier_one(project, staged):
    project.code(
        "algorithms",
        "from evsys_sdk import SFT, register_algorithm\n"
        "@register_algorithm('breaks')\nclass Breaks(SFT):\n"
        "    async def build_batch(self, step_idx):\n        raise RuntimeError('it broke')\n",
    )
    result = staged(("sft, params: {learning_rate: 0.02", "breaks, params: {learning_rate: 0.02")).run()

    assert [arm.status for arm in result.arms] == ["completed", "failed"]
    [compared] = result.conclusion.comparisons
    assert (compared.outcome, compared.after) == ("unscored", None)
    assert (result.status, result.exit_code) == ("completed", 1)


def test_a_stage_before_that_kept_no_weights_is_an_error_of_the_one_after(project, staged):
    project.code(
        "algorithms",
        "import attrs\n"
        "from evsys_sdk import SFT, register_algorithm\n"
        "@register_algorithm('keeps_nothing')\nclass KeepsNothing(SFT):\n"
        "    async def train(self, ctx):\n"
        "        return attrs.evolve(await super().train(ctx), final_checkpoint=None)\n",
    )
    result = staged(
        ("sft, params: {learning_rate: 0.05", "keeps_nothing, params: {learning_rate: 0.05")
    ).run()

    assert [arm.status for arm in result.arms] == ["completed", "failed"]
    failure = result.arms[1].failure
    assert failure.message == (
        "stage 2-two begins with the weights that run-s0.1-one ended with, and that run kept none"
    )


def test_weights_that_were_damaged_meanwhile_are_not_begun_with(staged, monkeypatch):
    from evsys_runtime.experiment.stages import chain

    real = chain.resulting_weights

    def damage(record, result):
        entry = real(record, result)
        path = entry.directory / next(iter(entry.files))
        path.write_bytes(path.read_bytes()[:-1])
        return entry

    monkeypatch.setattr(chain, "resulting_weights", damage)
    result = staged().run()
    assert "has changed since it was saved" in result.arms[1].failure.message


def test_a_dry_run_takes_two_steps_of_each_stage(staged):
    result = staged(dry=True).run()
    assert [arm.run.steps for arm in result.arms] == [2, 2]
    assert result.arms[1].evaluations[0].step == 2


def test_a_budget_of_steps_pays_for_stages_one_by_one(staged):
    result = staged(extra="budget: {steps: 5}\n").run()
    assert [arm.status for arm in result.arms] == ["completed", "budget_stopped"]
    assert result.status == "budget_stopped"


def test_arms_go_on_beside_each_other_and_stages_do_not(staged, monkeypatch):
    from evsys_runtime.experiment import scheduling

    running, seen = set(), []
    real = scheduling.run_arm

    async def watched(session, arm):
        running.add((arm.name, arm.repeat))
        seen.append((arm.run_id, len(running)))
        try:
            await asyncio.sleep(0)
            return await real(session, arm)
        finally:
            running.discard((arm.name, arm.repeat))

    monkeypatch.setattr(scheduling, "run_arm", watched)
    result = staged(extra="n_repeats: 2\nmax_concurrent_arms: 4\n").run()
    assert result.status == "completed"
    assert [run for run, _ in seen[:2]] == ["run-s0.1-one", "run-s1.1-one"]
    assert max(count for _, count in seen) == 2


def test_an_experiment_that_was_cut_off_between_stages_goes_on_with_the_next(staged, monkeypatch):
    from evsys_runtime.experiment.arm import phases as arms

    whole = staged().run()
    first = staged()
    real = arms.start_of

    def cut_off(session, arm, model):
        if not arm.stage.first:
            raise KeyboardInterrupt
        return real(session, arm, model)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(arms, "start_of", cut_off)
        first.run()
    assert first.result.arms[0].status == "completed"

    again = Experiment.resume(first.record.directory, quiet=True).run()
    assert weights(again, again.arms[1]) == weights(whole, whole.arms[1])
    assert [arm.attempt for arm in again.arms] == [1, 2]
    # It is the second look at the question, tested at a lower level.
    effects = [(one.arm, one.effect, one.p_value) for one in whole.conclusion.comparisons]
    assert [(one.arm, one.effect, one.p_value) for one in again.conclusion.comparisons] == effects


def test_a_fork_branches_off_in_every_stage(staged):
    whole = staged().run()
    fork = Experiment.fork(whole.directory, quiet=True).run()
    assert [weights(fork, arm) for arm in fork.arms] == [weights(whole, arm) for arm in whole.arms]
    assert facts(fork, "run-s0.2-two")["begins_with"]["run_id"] == "run-s0.1-one"
    for arm in whole.arms:
        told = [facts(result, arm.run_id) for result in (whole, fork)]
        of_the_chain = ("arm", "repeat", "stage", "after", "dry", "deterministic")
        assert [told[0][name] for name in of_the_chain] == [told[1][name] for name in of_the_chain]


def test_as_many_go_on_beside_each_other_as_there_are_chains(staged):
    assert staged().plan.concurrent_arms == 1
    assert staged(extra="n_repeats: 3\n").plan.concurrent_arms == 3
    plan = staged().plan
    with Index(plan.project_root / plan.experiment.output_dir) as index:
        assert plan_experiment(plan, index).concurrent == 1


def test_a_runner_of_ones_own_has_the_stages_on_record(staged):
    def trained(cfg):
        assert [run.name for run in cfg.runs] == ["run-s0.1-one", "run-s0.2-two"]
        return [RunResult(status="completed") for run in cfg.runs]

    result = staged(train_fn=trained).run()
    told = [facts(result, arm.run_id) for arm in result.arms]
    assert [(each["stage"], each["after"]) for each in told] == [("1-one", None), ("2-two", "run-s0.1-one")]


def test_experiment_json_and_resolved_json_tell_the_stages(staged):
    result = staged().run()
    told = read_json(Path(result.directory) / "experiment.json")["arms"]
    assert told == [
        {"run_id": "run-s0.1-one", "arm": "run", "repeat": 0, "stage": "1-one"},
        {"run_id": "run-s0.2-two", "arm": "run", "repeat": 0, "stage": "2-two"},
    ]
    resolved = read_json(Path(result.directory) / "resolved.json")
    assert [stage["name"] for stage in resolved["stages"]] == ["one", "two"]
    assert [arm["run"]["data"]["path"] for arm in resolved["arms"]] == ["train.jsonl", "more.jsonl"]
    seeds = [arm["seeds"] for arm in resolved["arms"]]
    assert seeds[0]["data_order"] != seeds[1]["data_order"]
    assert seeds[0]["data"] == seeds[1]["data"]
    assert seeds[0]["evaluation/val"] == seeds[1]["evaluation/val"]


def test_only_what_began_with_the_same_stages_counts_as_run_before(project, staged, run_text):
    two = run_text(("train.jsonl", "more.jsonl"), ("steps: 6", "steps: 3"), ("0.05", "0.02"))
    project.experiment(f"run:{two}").run()
    staged().run()
    plan = staged().plan
    with Index(plan.project_root / plan.experiment.output_dir) as index:
        planned = plan_experiment(plan, index)

    same = [(n.arm, n.other_arm) for n in planned.neighbours if not n.differences]
    assert same == [("run.1-one", "run.1-one"), ("run.2-two", "run.2-two")]
    assert [(arm.arm, arm.stage) for arm in planned.arms] == [
        ("run.1-one", "1-one"),
        ("run.2-two", "2-two"),
    ]
