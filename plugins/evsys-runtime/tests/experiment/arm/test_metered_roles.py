"""Second models are charged by the runtime, whoever wrote the algorithm that asks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from evsys_record.files import read_json
from evsys_runtime.experiment import Experiment

ALGORITHM = """
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from evsys import register_algorithm
from evsys.types import Datum, TrainingBatch
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_runtime.training.params import TrainingParams


@register_algorithm("asking")
class Asking(BaseAlgorithm):
    \"\"\"Asks the reference twice and the teacher once a step, and counts nothing of it.\"\"\"

    Config = TrainingParams
    shape = "chat"
    roles = {"reference": frozenset(), "teacher": frozenset()}
    rows = 8

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        tokens = np.arange(5, 15)
        data = [Datum(tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:], "weights": np.ones(9)})]
        clients = self.ctx.clients
        await clients.reference.forward(data)
        snapshot = await clients.reference.sampling_client()
        await snapshot.compute_logprobs(tokens.tolist())
        await snapshot.close()
        await (await clients.teacher.sampling_client()).compute_logprobs(tokens.tolist())
        return TrainingBatch(data=data, loss_fn="cross_entropy", row_ids=(f"r{step_idx}",))
"""

RUN = """
  data: {source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: asking, params: {learning_rate: 0.01, steps: STEPS, batch_size: 4, save_every: 1}}
  backend: {kind: mock}
  reference: {model: {name: evsys/tiny}}
  teacher: {model: {name: evsys/tiny}}
"""
READ, THOUGHT = 9 + 10, 10
"""Tokens that the reference and the teacher read each step; 9 are trained on."""


def asking(project, steps=3, extra="") -> Experiment:
    project.code("algorithms", ALGORITHM)
    return project.experiment(f"run:{RUN.replace('STEPS', str(steps))}", metadata="", extra=extra)


def test_a_third_partys_reference_and_teacher_are_counted_and_listed_apart(project):
    (arm,) = asking(project).run().arms
    assert arm.status == "completed"
    assert {name: used.tokens for name, used in arm.run.roles.items()} == {
        "reference": 3 * READ,
        "teacher": 3 * THOUGHT,
    }
    assert arm.usage.trained_tokens == 3 * 9
    assert arm.usage.prompt_tokens == 3 * (READ + THOUGHT)


def test_they_cost_what_they_compute_of_a_budget(project):
    (arm,) = asking(project, steps=9, extra="\nbudget: {tokens: 100}\n").run().arms
    assert (arm.status, arm.run.steps) == ("budget_stopped", 2)  # 38 tokens a step
    kept = read_json(Path(arm.run_dir).parents[1] / "experiment.json")
    assert kept["budget"]["spent"]["tokens"] == arm.usage.tokens


def test_a_resumed_run_continues_their_accounts(project, monkeypatch):
    from evsys_runtime.training.loop import TrainingLoop

    cut, step = asking(project), TrainingLoop._step

    async def cut_off(self, progress):
        if progress.step == 2:
            raise KeyboardInterrupt
        await step(self, progress)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", cut_off)
        with pytest.raises(KeyboardInterrupt):
            cut.run()
    (arm,) = Experiment.resume(cut.record.directory, quiet=True).run().arms
    assert arm.run.roles["reference"].tokens == 3 * READ
    assert arm.run.roles["teacher"].tokens == 3 * THOUGHT


def test_a_built_in_algorithm_is_charged_once_for_its_teacher(project):
    project.write("train.jsonl", [{"prompt": f"say {letter}", "completion": letter} for letter in "abcdefgh"])
    text = """
  data: {source_kind: jsonl, path: train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: opd, params: {learning_rate: 0.003, steps: 3, batch_size: 4, lora_rank: 4, max_tokens: 6}}
  backend: {kind: mock}
  teacher: {model: {name: evsys/tiny}}
"""
    result = project.experiment(f"run:{text}", metadata="", extra="\nbudget: {tokens: 100000}\n").run()
    (arm,) = result.arms
    assert arm.run.roles["teacher"].tokens == arm.run.metrics["teacher_tokens_total"] > 0
    kept = read_json(Path(result.directory) / "experiment.json")
    assert kept["budget"]["spent"]["tokens"] == arm.usage.tokens


OWN_MODEL = """
@register_algorithm("looking_again")
class LookingAgain(Asking):
    \"\"\"Asks its own model beside the training: a pass, a reading and a sample a step.\"\"\"

    roles = {}

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        tokens = np.arange(5, 15)
        data = [Datum(tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:], "weights": np.ones(9)})]
        policy = self.ctx.clients.policy
        await policy.forward(data)
        snapshot = await policy.sampling_client()
        await snapshot.compute_logprobs(tokens.tolist())
        await snapshot.sample(tokens.tolist(), SamplingParams(max_tokens=1), n=2)
        await snapshot.close()
        return TrainingBatch(data=data, loss_fn="cross_entropy", row_ids=(f"r{step_idx}",))
"""
BESIDE = 9 + 10 + 10 + 2
"""Tokens that the trained model reads and draws beside the training each step."""


def looking_again(project, steps=3, extra="") -> Experiment:
    code = ALGORITHM.replace("Datum, TrainingBatch", "Datum, SamplingParams, TrainingBatch")
    project.code("algorithms", code + OWN_MODEL)
    run = RUN.replace("kind: asking", "kind: looking_again").replace("STEPS", str(steps))
    return project.experiment(f"run:{run.partition('  reference')[0]}", metadata="", extra=extra)


def test_what_an_algorithm_asks_of_its_own_model_beside_the_training_is_counted(project):
    (arm,) = looking_again(project).run().arms
    assert arm.status == "completed"
    assert {name: used.tokens for name, used in arm.run.roles.items()} == {"policy": 3 * BESIDE}
    assert arm.usage.trained_tokens == 3 * 9


def test_it_costs_what_it_computes_of_a_budget(project):
    result = looking_again(project, steps=9, extra="\nbudget: {tokens: 100}\n").run()
    (arm,) = result.arms
    assert (arm.status, arm.run.steps) == ("budget_stopped", 2)  # 40 tokens a step
    kept = read_json(Path(result.directory) / "experiment.json")
    assert kept["budget"]["spent"]["tokens"] == arm.usage.tokens


def test_rows_that_are_kept_out_are_charged_as_they_are_measured(project):
    text = """
  data: {source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.01, steps: 2, batch_size: 2, held_out: 2}}
  backend: {kind: mock}
"""
    result = project.experiment(f"run:{text}", metadata="", extra="\nbudget: {tokens: 100000}\n").run()
    (arm,) = result.arms
    assert arm.run.roles["policy"].prompt_tokens > 0
    kept = read_json(Path(result.directory) / "experiment.json")
    assert kept["budget"]["spent"]["tokens"] == arm.usage.tokens
