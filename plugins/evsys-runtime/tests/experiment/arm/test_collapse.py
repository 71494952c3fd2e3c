"""`on_collapse` of every algorithm: numbers that aren't finite, whatever made them, and weights that are dead."""

import json
from pathlib import Path

import pytest
from small_project import Project

from evsys_record.files import read_json

RUN = """
run:
  data: {{source_kind: jsonl, path: {data}}}
  model: {{name: evsys/tiny}}
  {teacher}
  algorithm: {{kind: {kind}, params: {{{params}}}}}
  backend: {{kind: {backend}}}
"""

ALWAYS = "steps: 6, save_every: 2, batch_size: 2, lora_rank: 4, lr_schedule: constant"

CODE = '''
import numpy as np
from evsys.types import Datum, TrainingBatch
from evsys_algo_distill import OPD, SDFT
from evsys_algo_dpo import DPO
from evsys_algo_rl import RL
from evsys_algo_sft import SFT
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_sdk import register_algorithm, register_loss, register_verifier


@register_verifier("any")
def anything(model_output, expected, params):
    return float(len(model_output) % 2)


@register_loss("nanny")
def nanny(logprobs):
    return sum(row.sum() for row in logprobs) * float("nan")


class Broken:
    """Uses the registered loss, which is nan, at step 5 until the run goes back."""

    async def build_batch(self, step_idx):
        batch = await super().build_batch(step_idx)
        if self.ctx.retreats < BREAKS and step_idx == 4:
            batch.loss_fn, batch.loss_params = lambda data, logprobs, **_: nanny(logprobs), {}
        return batch


class Mine(BaseAlgorithm):
    """An algorithm of one's own, with nothing but its batches."""

    async def build_batch(self, step_idx):
        tokens = np.array([3, 4, 5 + step_idx, 6])
        inputs = {"target_tokens": tokens, "weights": np.ones(4, np.float32)}
        return TrainingBatch(data=[Datum(tokens=tokens, loss_inputs=inputs)], loss_fn="cross_entropy")


for base in (SFT, DPO, SDFT, OPD, RL, Mine):
    register_algorithm(f"broken_{base.__name__.lower()}")(type(f"Broken{base.__name__}", (Broken, base), {}))
register_algorithm("mine")(Mine)
'''

DATA = {
    "sft": "train.jsonl, transforms: [{kind: jsonl_to_chat}]",
    "mine": "train.jsonl, transforms: [{kind: jsonl_to_chat}]",
    "dpo": "pairs.jsonl",
    "sdft": "shown.jsonl",
    "opd": "shown.jsonl",
    "rl": "tasks.jsonl",
}
MORE = {
    "sdft": ", max_tokens: 4",
    "opd": ", max_tokens: 4",
    "rl": ", max_tokens: 4, group_size: 4, advantage: none",
}


class Lab:
    def __init__(self, root, breaks=1):
        self.project = Project(root)
        write = self.project.write
        write("pairs.jsonl", [{"prompt": f"say {c}", "chosen": c, "rejected": "zz"} for c in "abcdefgh"])
        write("shown.jsonl", [{"prompt": f"say {c}", "completion": c} for c in "abcdefgh"])
        self.project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("abcdefgh")], "any")
        self.project.code("broken", CODE.replace("BREAKS", str(breaks)))

    def run(self, kind, more, backend="mock", *, broken=False, metadata=""):
        text = RUN.format(
            data=DATA[kind],
            teacher="teacher: {model: {name: evsys/tiny}}" if kind == "opd" else "",
            kind=f"broken_{kind}" if broken else kind,
            params=ALWAYS + MORE.get(kind, "") + more,
            backend=backend,
        )
        [arm] = self.project.experiment(text, metadata=metadata).run().arms
        folder = Path(arm.run_dir)
        self.attempts = [
            (one["n"], one["reason"], one["parent"], one["from_step"])
            for one in read_json(folder / "run.json")["attempts"]
        ]
        metrics = folder / "training/metrics.jsonl"
        lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        self.rates = [(one["attempt"], one["step"], one["values"]["learning_rate"]) for one in lines]
        return arm


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


@pytest.mark.parametrize("how", ["rollback", "branch"])
@pytest.mark.parametrize("kind", DATA)
def test_every_algorithm_goes_back_from_a_registered_loss_that_is_nan(lab, kind, how):
    arm = lab.run(kind, f", learning_rate: 0.01, on_collapse: {how}", broken=True)
    assert (arm.status, arm.attempt, arm.run.steps) == ("completed", 2, 6), arm.failure
    assert lab.attempts == [(1, "start", None, 0), (2, "rollback", 1, 2)]
    cause = read_json(Path(arm.run_dir) / "run_result.1.json")["run"]["stop_reason"]
    [told] = [text for text in arm.warnings if "collapsed in attempt 1" in text]
    assert told.startswith(f"training collapsed in attempt 1 ({cause}), and continued from step 2")
    assert lab.rates == [
        *((1, step, 0.01) for step in (1, 2, 3, 4)),
        *((2, step, 0.005) for step in (3, 4, 5, 6)),
    ]


TOO_HIGH = ", learning_rate: 1.0e+30, on_collapse: rollback, rollback_lr_factor: 1.0e-32"


@pytest.mark.parametrize(("kind", "backend"), [("sft", "mock"), ("sft", "local"), ("dpo", "local")])
def test_a_built_in_loss_that_overflows_starts_over_without_a_checkpoint(lab, kind, backend):
    arm = lab.run(kind, TOO_HIGH, backend)
    assert (arm.status, arm.attempt, arm.run.steps) == ("completed", 2, 6), arm.failure
    assert lab.attempts == [(1, "start", None, 0), (2, "rollback", 1, 0)]
    assert lab.rates[-1] == (2, 6, pytest.approx(0.01))


@pytest.mark.parametrize("kind", ["rl", "sdft"])
def test_nan_that_is_first_met_while_sampling_is_gone_back_from(lab, kind):
    arm = lab.run(kind, TOO_HIGH, "local")
    assert (arm.status, arm.attempt, arm.run.steps) == ("completed", 2, 6), arm.failure
    assert lab.attempts == [(1, "start", None, 0), (2, "rollback", 1, 0)]


@pytest.mark.parametrize("how", ["stop", "warn"])
def test_without_going_back_a_number_that_is_not_finite_is_a_failure(lab, how):
    arm = lab.run("sft", f", learning_rate: 0.01, on_collapse: {how}", broken=True)
    assert (arm.status, arm.attempt, arm.run.steps) == ("failed", 1, 4)
    assert "is nan" in arm.failure.message


def test_rollbacks_are_bounded(tmp_path):
    lab = Lab(tmp_path, breaks=99)
    arm = lab.run("sft", ", learning_rate: 0.01, on_collapse: rollback, max_rollbacks: 2", broken=True)
    assert (arm.status, arm.attempt, arm.run.steps) == ("failed", 3, 4)
    assert [reason for _, reason, *_ in lab.attempts] == ["start", "rollback", "rollback"]


def test_going_back_is_deterministic(tmp_path):
    losses = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        arm = Lab(tmp_path / name).run("opd", ", learning_rate: 0.01, on_collapse: rollback", broken=True)
        losses.append((arm.run.metrics["loss"], arm.run.metrics["entropy"]))
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("kind", "loss"), [("sft", "5.557"), ("mine", "22.23")]
)  # of one and of four tokens: ln 259
def test_a_loss_that_stays_at_that_of_a_guess_with_a_gradient_of_zero_is_a_collapse(lab, kind, loss):
    arm = lab.run(kind, ", learning_rate: 1.0e+6", "local")
    assert (arm.status, arm.run.steps) == ("collapsed", 6)
    assert f"gradient norm was 0 and the loss stayed at {loss} for 5 steps" in arm.run.stop_reason
    assert arm.run.metrics["collapse/healthy_steps"] == 1.0
    assert [one.metric for one in arm.health] == (["grad_norm"] if kind == "sft" else [])


def test_dead_weights_are_gone_back_from(lab):
    arm = lab.run(
        "sft", ", learning_rate: 1.0e+6, on_collapse: rollback, rollback_lr_factor: 1.0e-8", "local"
    )
    assert (arm.status, arm.attempt, arm.run.steps) == ("completed", 2, 6)
    assert lab.attempts == [(1, "start", None, 0), (2, "rollback", 1, 0)]


def test_dead_weights_may_only_be_reported(lab):
    arm = lab.run("sft", ", learning_rate: 1.0e+6, on_collapse: warn", "local")
    assert (arm.status, arm.run.steps) == ("completed", 6)
    assert any("training collapsed: the gradient norm was 0" in warning for warning in arm.warnings)
