"""A secret that plugins say wherever they can say something is in no file of the record, and on no terminal."""

from __future__ import annotations

import pytest
from small_project import METADATA

from evsys_runtime.experiment import Experiment

CANARY = "canary-9f8e7d6c5b4a3928"

LEAKS = """
import os
from evsys.types import NoScore
from evsys_sdk import SFT, register_algorithm, register_callback, register_inference_client, register_verifier

KEY = os.environ["CANARY_API_KEY"]

@register_verifier("leaks")
def leaks(model_output, expected, params):
    if expected == "a":
        raise RuntimeError(f"401 for {KEY}")
    return NoScore(reason=f"refused {KEY}")

@register_inference_client("leaks")
class Service:
    def __init__(self, **fields):
        pass

    async def generate(self, messages, sampling, *, n=1, tools=()):
        raise ConnectionError(f"refused {KEY}")

@register_algorithm("leaks")
class Leaks(SFT):
    def step_metrics(self, index, batch, result):
        return {**super().step_metrics(index, batch, result), f"loss_{KEY}": 1.0}

@register_algorithm("fails")
class Fails(Leaks):
    async def build_batch(self, step_idx):
        if step_idx == 3:
            raise OSError(f"lost the way to {KEY}")
        return await super().build_batch(step_idx)

@register_callback("leaks")
class Listens:
    def evsys_run_started(self, ctx):
        ctx.record.note(mine={KEY: [KEY]})
        ctx.log.warning("leaks", key=KEY)
        ctx.warn(f"warned of {KEY}")

    def evsys_step_finished(self, ctx, step):
        if step == 4:
            ctx.request_stop(f"stopped at {KEY}")
        raise ValueError(f"failed with {KEY}")

    def evsys_write_conclusion(self, result, conclusion):
        return f"It was {KEY}."
"""


@pytest.mark.parametrize(("algorithm", "status"), [("leaks", "completed"), ("fails", "failed")])
def test_a_secret_is_in_no_file_and_on_no_terminal(project, run_text, monkeypatch, capfd, algorithm, status):
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    project.code("plugins", LEAKS)
    project.tasks([(f"t{i:02d}", "say", "ab"[i % 2]) for i in range(12)], verifier="leaks")
    text = "run:" + run_text(("kind: sft", f"kind: {algorithm}"), ("steps: 6", "steps: 6, save_every: 2"))
    metadata = f"{METADATA.rstrip()}\n    models: [{{kind: leaks}}]\n"
    path = project.config(text, metadata=metadata, extra="callbacks: [{kind: leaks}]\n")
    result = Experiment.from_yaml(path, skip_grader_check=True).run()
    [arm] = result.arms
    assert arm.status == status
    why = arm.failure.message if status == "failed" else arm.run.stop_reason
    assert why.endswith("[redacted]")
    assert any("failed with [redacted]" in warning for warning in result.warnings)
    Experiment.resume(result.directory).run()
    files = [path for path in project.root.rglob("*") if path.is_file() and ".evsys" in path.parts]
    assert any(path.name == "manifest.json" and "checkpoints" in path.parts for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    shown = capfd.readouterr()
    assert CANARY not in shown.out + shown.err
    assert "[redacted]" in shown.err
