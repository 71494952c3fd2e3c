"""One turn of the autoresearch loop: a hypothesis, data and a recipe of one's own, scores in the loop, a conclusion to read."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

CHAT = """{kind: jsonl_to_chat, params: {user_template: "Query: {query}", assistant_template: "<answer>{tool}</answer>"}}"""
RUN = f"""
run:
  data:
    source_kind: jsonl
    path: data/train.jsonl
    transforms:
      - {CHAT}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: sft, params: {{max_steps: 4, lora_rank: 8, batch_size: 4}}}}
  backend: {{kind: mock}}
"""
KEEP_FIRST = """
from pydantic import BaseModel
from evsys_sdk import register_transform


@register_transform("keep_first")
class KeepFirst:
    name = "keep_first"

    class Config(BaseModel, extra="forbid"):
        key: str = "query"

    def __init__(self, **kw):
        self.cfg = self.Config(**kw)

    def __call__(self, rows):
        by_key = {}
        for row in rows:
            by_key.setdefault(row.get(self.cfg.key), row)
        return list(by_key.values())
"""
ROUTER = """
import numpy as np
from evsys_sdk import register_algorithm
from evsys_sdk.algorithms.sft import SFT


def halved(data, logprobs):
    return -0.5 * sum((np.asarray(d.loss_inputs["weights"]) * p).sum() for d, p in zip(data, logprobs, strict=True))


@register_algorithm("halved_sft")
class HalvedSFT(SFT):
    name = "halved_sft"

    async def build_batch(self, step_idx):
        batch = await super().build_batch(step_idx)
        batch.loss_fn = halved
        return batch
"""
SECOND_TRY = """
from typing import ClassVar, Sequence
from evsys_sdk import register_metric


@register_metric("second_try")
class SecondTry:
    name: ClassVar[str] = "second_try"

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        return sum(rewards[1] >= 1.0 for rewards in task_rewards) / len(task_rewards)
"""
BENCHMARKS = """
metadata:
  hypothesis: "Rows without repeats teach the routes."
  success_metric: val.pass@1
  benchmark:
    - {name: val,  path: data/val,  run_every: 2, metrics: [pass@1], split: val, max_tokens: 4}
    - {name: test, path: data/test, run_every: 4, metrics: [pass@1], split: test, max_tokens: 4}
"""


def test_hypothesis_and_conclusion_are_recorded(lab):
    result = lab.run(BENCHMARKS + RUN)
    folder = Path(result.directory)
    assert "Rows without repeats" in (folder / "hypothesis.md").read_text(encoding="utf-8")
    assert result.conclusion.metric == "val.pass@1"
    assert "val.pass@1" in (folder / "conclusion.md").read_text(encoding="utf-8")
    assert "Rows without repeats" in lab.evsys("context").stdout


def test_templates_make_conversations_of_raw_rows(lab):
    result = lab.run(RUN)
    rows = lab.rows(Path(result.arms[0].run_dir) / "data/training_data.jsonl")
    first = [message["content"] for message in rows[0]["messages"]]
    assert first == ["Query: send it", "<answer>mail</answer>"]


def test_a_transform_of_the_project_takes_its_turn(lab):
    lab.write("src/my_transform.py", KEEP_FIRST)
    steps = f"- {{kind: keep_first, params: {{key: query}}}}\n      - {CHAT}"
    text = RUN.replace(f"- {CHAT}", steps).replace("batch_size: 4", "batch_size: 3")
    result = lab.run(text)
    assert result.status == "completed"
    assert len(lab.rows(Path(result.arms[0].run_dir) / "data/training_data.jsonl")) == 3


def test_an_algorithm_of_the_project_brings_its_loss(lab):
    lab.write("src/my_algorithm.py", ROUTER)
    plain = lab.run(RUN).arms[0].run
    halved = lab.run(RUN.replace("kind: sft", "kind: halved_sft")).arms[0].run
    assert (plain.steps, halved.steps) == (4, 4)
    assert halved.metrics["loss"] != pytest.approx(plain.metrics["loss"])


def test_run_every_says_when_an_entry_is_scored_and_split_where_its_numbers_go(lab):
    [arm] = lab.run(BENCHMARKS + RUN).arms
    steps = {"val": [], "test": []}
    for evaluation in arm.evaluations:
        steps[evaluation.split].append(evaluation.step)
    assert steps == {"val": [0, 2, 4], "test": [0, 4]}


def test_an_entry_without_run_every_is_scored_after_training(lab):
    [arm] = lab.run(BENCHMARKS.replace("run_every: 4, ", "") + RUN).arms
    assert [e.step for e in arm.evaluations if e.benchmark == "test"][-1] == 4


def test_metrics_draw_the_samples_that_they_need(lab):
    metrics = "[pass@1, pass@3, pass^3, cost_per_task, time_per_task, tokens_per_task]"
    [arm] = lab.run(
        BENCHMARKS.replace("metrics: [pass@1], split: val", f"metrics: {metrics}, split: val") + RUN
    ).arms
    last = [e for e in arm.evaluations if e.benchmark == "val"][-1]
    assert last.num_samples == 3
    assert all(metric.value is not None and math.isfinite(metric.value) for metric in last.metrics.values())
    assert last.metrics["pass@1"].value <= last.metrics["pass@3"].value


def test_a_metric_of_the_project_gets_a_list_of_rewards_for_each_task(lab):
    lab.write("src/metrics.py", SECOND_TRY)
    entry = "metrics: [pass@1, second_try], num_samples: 2, split: val"
    [arm] = lab.run(BENCHMARKS.replace("metrics: [pass@1], split: val", entry) + RUN).arms
    last = [e for e in arm.evaluations if e.benchmark == "val"][-1]
    tries = [rewards[1] >= 1.0 for rewards in last.task_rewards.values()]
    assert last.metrics["second_try"].value == sum(tries) / len(tries)


def test_the_local_logger_leaves_a_tree_by_concern(lab):
    result = lab.run(BENCHMARKS + RUN + "callbacks:\n  - {kind: local_logger}\n")
    run = Path(result.arms[0].run_dir)
    wanted = [
        "data/training_data.jsonl",
        "training/metrics.jsonl",
        "validation/metrics.jsonl",
        "validation/rollouts.jsonl",
        "test/metrics.jsonl",
        "test/rollouts.jsonl",
        "hypothesis.md",
        "conclusion.md",
    ]
    assert [name for name in wanted if not (run / name).is_file()] == []


def test_a_matrix_varies_the_recipe_and_the_best_arm_is_named(lab):
    lab.write("src/my_algorithm.py", ROUTER)
    base = RUN.replace("\nrun:", "\nbase_run:").replace(
        "  algorithm: {kind: sft, params: {max_steps: 4, lora_rank: 8, batch_size: 4}}\n", ""
    )
    axes = """
matrix:
  axes:
    algorithm.kind: [sft, halved_sft]
    algorithm.params.learning_rate: [1.0e-5, 1.0e-4]
    algorithm.params.max_steps: [2]
    algorithm.params.batch_size: [4]
"""
    result = lab.run(BENCHMARKS + axes + base)
    kinds = [arm.run.algorithm.kind for arm in lab.experiment(BENCHMARKS + axes + base).plan.arms]
    assert kinds == ["sft", "sft", "halved_sft", "halved_sft"]
    assert result.status == "completed"
    assert result.best_arm in {arm.arm for arm in result.arms}
    assert result.best_score is not None


HARNESS = """
from evsys_sdk import Message


class TwoTurns:
    async def run(self, task, model, tools, ctx):
        messages = [Message(role="user", content=task.instruction)]
        for question in ("sure?", ""):
            [completion] = await model.generate(messages, ctx.sampling)
            messages += [completion.message, Message(role="user", content=question)]
        return completion.message.content
"""
IN_HARNESS = """
run:
  data: {path: data/val/tasks.jsonl}
  model: {name: evsys/tiny}
  algorithm:
    kind: rl
    params:
      agent_import_path: src.harness.TwoTurns
      max_steps: 1
      groups_per_step: 2
      group_size: 4
      max_tokens: 4
  backend: {kind: mock}
"""


def test_a_model_is_trained_and_scored_in_the_harness_of_its_run(lab):
    lab.write("src/harness.py", HARNESS)
    [arm] = lab.run(BENCHMARKS + IN_HARNESS).arms
    assert arm.status == "completed", arm.failure
    for phase in ("training", "validation", "test"):
        rollouts = lab.rows(Path(arm.run_dir) / phase / "rollouts.jsonl")
        assert {len(line["rollout"]["turns"]) for line in rollouts} == {2}, phase
