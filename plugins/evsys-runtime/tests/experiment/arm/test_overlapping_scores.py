"""Scoring goes on while the model is trained further: the scores are those of the snapshot, and none is lost at the end."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from small_project import METADATA, RUN

from evsys import use_registry
from evsys_record.checkpoints import MANIFEST
from evsys_runtime.experiment.evaluated_models import find_saved_model
from evsys_runtime.experiment.evaluation import ascore
from evsys_runtime.experiment.supervision.interrupts import TerminationRequest

ALONE = {"no_cache": True, "skip_grader_check": True}
"""Nothing is asked of a verifier but the scores of a run, and nothing but the run gives them."""

LAST = "select: {checkpoint: last}\n"
EVERY_5 = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 5\n    temperature: 1.0")

HELD = """
import asyncio
from evsys_sdk import register_callback, register_verifier

GATES = {}

def gate(version):
    return GATES.setdefault(version, asyncio.Event())

@register_verifier("held")
async def held(model_output, expected, params, rollout):
    await gate(rollout.policy_version).wait()
    return float(len(model_output) % 2)

@register_callback("releases")
class Releases:
    def evsys_step_finished(self, ctx, step, metrics):
        ctx.log.info("step.told", step=step)
        gate(step - 5).set()
        if step == 12:  # what is submitted from here on has no five steps to come
            for version in (10, 12):
                gate(version).set()
"""

STUCK = """
import asyncio
from evsys_sdk import register_verifier

@register_verifier("stuck")
async def stuck(model_output, expected, params):
    await asyncio.Event().wait()
"""


def lines(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def rollouts(run_dir, step):
    """Each rollout of a step by task, without what it took and the step, which a checkpoint starts anew."""
    found = {}
    for line in lines(Path(run_dir) / "validation/rollouts.jsonl"):
        if line["step"] == step:
            rollout = line["rollout"]
            assert rollout.pop("usage")["completion_tokens"] == len(rollout["turns"][0]["tokens"])
            rollout.pop("policy_version")
            found[rollout["task_id"]] = rollout
    return found


@pytest.fixture
def trained(project):
    """A run of 12 steps whose scorings are held for five steps each."""

    def run(backend):
        project.code("plugins", HELD)
        project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("abcdefghijkl")], verifier="held")
        text = RUN.replace("steps: 6", "steps: 12, save_every: 5").replace("kind: mock", f"kind: {backend}")
        experiment = project.experiment(
            f"run:{text}", metadata=EVERY_5, extra=f"callbacks: [{{kind: releases}}]\n{LAST}", **ALONE
        )
        return experiment, experiment.run()

    return run


@pytest.mark.parametrize("backend", ["mock", "local"])
def test_a_verifier_that_is_held_for_five_steps_holds_up_no_step_and_the_scores_are_those_of_the_snapshot(
    project, trained, backend
):
    experiment, result = trained(backend)
    assert result.status == "completed"
    (arm,) = result.arms
    assert [(e.step, e.status, e.scored) for e in arm.evaluations] == [
        (step, "completed", 12) for step in (0, 5, 10, 12)
    ]
    log = [
        (line["event"], line["step"])
        for line in lines(Path(arm.run_dir) / "run.log.jsonl")
        if line["event"] in ("step.told", "evaluation.started", "evaluation.finished")
    ]
    for step in (0, 5):
        assert log.index(("evaluation.started", step)) < log.index(("step.told", step + 2))
        assert log.index(("step.told", step + 5)) < log.index(("evaluation.finished", step))

    for step in (5, 10):  # the same weights, scored once nothing is trained any more
        saved = find_saved_model(Path(arm.run_dir) / "checkpoints" / str(step))
        entries = experiment.plan.experiment.metadata.benchmarks
        registry = experiment.plan.registry
        with use_registry(registry):
            after = asyncio.run(
                ascore(saved, entries, project_root=project.root, registry=registry, quiet=True, **ALONE)
            )
        inside = next(e for e in arm.evaluations if e.step == step)
        assert inside.task_rewards == after.evaluations[0].task_rewards
        assert inside.metrics == after.evaluations[0].metrics
        assert rollouts(arm.run_dir, step) == rollouts(after.run_dir, step)
    assert len(rollouts(arm.run_dir, 5)) == 12
    assert rollouts(arm.run_dir, 5) != rollouts(arm.run_dir, 10)
    assert arm.usage.seconds <= arm.seconds  # though what went on side by side took more than that in sum


def test_a_checkpoint_says_which_scorings_were_under_way(trained):
    _, result = trained("mock")
    folder = Path(result.arms[0].run_dir) / "checkpoints"
    pending = {
        step: json.loads((folder / str(step) / MANIFEST).read_text(encoding="utf-8"))["manifest"]["loop"][
            "scorings"
        ]
        for step in (5, 10, 12)
    }
    assert pending[5] in (
        [{"step": 5, "benchmark": "val"}],
        [{"step": 0, "benchmark": "val"}, {"step": 5, "benchmark": "val"}],  # just let go
    )
    assert pending[10][-1] == {"step": 10, "benchmark": "val"}
    assert {"step": 0, "benchmark": "val"} not in pending[10]


def test_a_failing_step_cuts_off_what_is_scored_and_says_so(project):
    project.code(
        "plugins",
        STUCK
        + """
from evsys_sdk import SFT, register_algorithm

@register_algorithm("breaks")
class Breaks(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 3:
            raise RuntimeError("the fourth batch")
        return await super().build_batch(step_idx)
""",
    )
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(12)], verifier="stuck")
    (arm,) = project.experiment(overrides=["run.algorithm.kind=breaks"], **ALONE).run().arms
    assert (arm.status, arm.run.steps) == ("failed", 3)
    assert "the fourth batch" in arm.failure.message
    [cut] = arm.evaluations
    assert (cut.step, cut.status) == (0, "missing")
    assert cut.failure.message.startswith("cut off before its end, since the run failed: ")
    assert "the fourth batch" in cut.failure.message
    log = lines(Path(arm.run_dir) / "run.log.jsonl")
    assert [line["step"] for line in log if line["event"] == "evaluation.missing"] == [0]


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("when", ["step == 3", "step == 6"], ids=["in training", "after it"])
def test_a_signal_cuts_off_what_is_scored_and_leaves_no_task(project, when):
    project.code(
        "plugins",
        STUCK
        + f"""
import os, signal
from evsys_sdk import register_callback

@register_callback("kills")
class Kills:
    def evsys_step_finished(self, ctx, step, metrics):
        if {when}:
            asyncio.get_running_loop().call_later(0, os.kill, os.getpid(), signal.SIGTERM)
""",
    )
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(12)], verifier="stuck")
    experiment = project.experiment(extra="callbacks: [{kind: kills}]\n", **ALONE)
    with pytest.raises(TerminationRequest):
        experiment.run()
    (arm,) = experiment.result.arms
    assert arm.status == "cancelled"
    found = [(e.step, e.status, e.failure.message) for e in arm.evaluations]
    reason = "cut off before its end, since the run was interrupted by SIGTERM"
    assert found[0] == (0, "missing", reason)
    assert {message for _, _, message in found} == {reason}
    written = json.loads((Path(arm.run_dir) / "run_result.json").read_text(encoding="utf-8"))
    assert [e["status"] for e in written["evaluations"]] == ["missing"] * len(found)


def test_a_listener_that_hears_of_a_score_may_stop_the_training(project):
    project.code(
        "callbacks",
        """
import asyncio
from evsys_sdk import register_callback

@register_callback("stops")
class Stops:
    heard = None

    def evsys_evaluation_finished(self, ctx, evaluation):
        Stops.heard = evaluation.step
        if evaluation.step == 2:
            ctx.request_stop(f"good enough at step {evaluation.step}")

    async def evsys_step_finished(self, ctx, step, metrics):
        while step == 4 and Stops.heard != 2:
            await asyncio.sleep(0)
""",
    )
    metadata = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 2")
    result = project.experiment(metadata=metadata, extra="callbacks: [{kind: stops}]\n").run()
    (arm,) = result.arms
    assert (arm.run.steps, arm.run.stop_reason) == (4, "good enough at step 2")
    assert [(e.step, e.status) for e in arm.evaluations] == [
        (0, "completed"),
        (2, "completed"),
        (4, "completed"),
    ]


def test_scores_of_starting_weights_are_shared_though_the_arm_that_made_them_failed(project, run_text):
    project.code(
        "plugins",
        """
import asyncio
from evsys_sdk import SFT, register_algorithm

@register_algorithm("breaks")
class Breaks(SFT):
    async def build_batch(self, step_idx):
        while not self.ctx.evaluate.results:
            await asyncio.sleep(0)
        raise RuntimeError("late")
""",
    )
    text = "matrix:\n  axes:\n    algorithm.kind: [breaks, sft]\nbase_run:" + run_text()
    broken, whole = project.experiment(text).run().arms
    assert [(e.step, e.status) for e in broken.evaluations] == [(0, "completed")]
    assert broken.evaluations[0].usage.completion_tokens > 0
    assert whole.evaluations[0].usage.completion_tokens == 0
    assert whole.evaluations[0].task_rewards == broken.evaluations[0].task_rewards


def test_an_injected_runner_that_is_cancelled_leaves_no_scoring_behind(project):
    from evsys.types import Completion, Message, RunResult

    asked = asyncio.Event()

    class Asked:
        async def generate(self, messages, sampling, *, n=1, tools=()):
            asked.set()
            return [Completion(message=Message(role="assistant", content="a"), finish_reason="stop")] * n

    async def train(session):
        return [RunResult(status="completed", steps=1)]

    async def cancelled():
        project.code("plugins", STUCK)
        project.tasks([(f"t{i:02d}", "say a", "a") for i in range(12)], verifier="stuck")
        experiment = project.experiment(
            train_fn=train, inference_factory=lambda _result, _run: Asked(), **ALONE
        )
        running = asyncio.create_task(experiment.arun())
        await asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(cancelled())
