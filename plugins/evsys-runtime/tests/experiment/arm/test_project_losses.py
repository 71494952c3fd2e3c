"""Losses that a project registers, by name in a run."""

from __future__ import annotations

import json
from pathlib import Path

CODE = """
import numpy as np
from evsys_sdk import SFT, register_algorithm, register_loss


@register_loss("NAME")
def constant(data, logprobs):
    return 7.0 + 0.0 * sum(np.sum(values) for values in logprobs)


@register_algorithm("named")
class Named(SFT):
    async def build_batch(self, step_idx):
        batch = await super().build_batch(step_idx)
        batch.loss_fn = "NAME"
        return batch
"""


def losses(result):
    path = Path(result.arms[0].run_dir) / "training/metrics.jsonl"
    return [json.loads(line)["values"]["loss"] for line in path.read_text(encoding="utf-8").splitlines()]


def trained(project, run_text, name, algorithm):
    project.code("plugins", CODE.replace("NAME", name))
    # A constant has a gradient of 0, which would end the run as collapsed.
    run = run_text(("kind: sft", f"kind: {algorithm}"), ("steps: 6", "steps: 6, on_collapse: warn"))
    return project.experiment("run:" + run).run()


def test_a_registered_loss_is_found_by_its_name(project, run_text):
    result = trained(project, run_text, "mine", "named")
    assert losses(result) == [7.0] * 6
    assert not any("hides" in warning for warning in result.warnings)


def test_a_loss_called_like_a_built_in_one_is_used_also_where_an_algorithm_asks_for_the_built_in(
    project, run_text
):
    result = trained(project, run_text, "cross_entropy", "sft")
    assert losses(result) == [7.0] * 6
    assert "loss 'cross_entropy' is the project's own and hides the built-in one" in result.warnings
