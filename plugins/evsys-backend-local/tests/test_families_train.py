"""Each family goes the whole way: an experiment trains it, its checkpoint is exported, the export is a base model."""

import json
from functools import partial

import numpy as np
import pytest

from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.workers import blas_info
from evsys_backend_local.models.adapter import read_adapter
from evsys_backend_local.models.export import export_model
from evsys_backend_local.models.resolve import load_base

FAMILIES = ["llama", "smollm2", "mistral", "qwen2", "qwen3"]


@pytest.fixture
def project(routing, tmp_path, monkeypatch):
    """Writes experiments into a project of its own."""
    monkeypatch.chdir(tmp_path)
    return partial(routing.write, tmp_path)


@pytest.fixture
def run(routing):
    return routing.run


def losses(folder):
    lines = (folder / "training" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["values"]["loss"] for row in map(json.loads, lines)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_learns_saves_and_is_exported(project, run, routing, family, tmp_path):
    folder = run(project(family))
    curve = losses(folder)
    assert curve[-1] < 0.85 * curve[0]
    assert curve[-1] < np.log(259)  # what guessing costs
    checkpoint = folder / "checkpoints" / str(routing.STEPS)
    export_model(str(checkpoint), tmp_path / "merged")
    base, merged = (
        Engine(load_base(tmp_path / family), workers=1),
        Engine(load_base(tmp_path / "merged"), workers=1),
    )
    saved = read_adapter(checkpoint)
    model = base.create_adapter(rank=saved.rank, alpha=saved.alpha)
    model.load_params(dict(saved.arrays), what="x")
    tokens = [list(b"my mail GMAIL")]
    np.testing.assert_allclose(
        merged.compute_logprobs(merged.base, tokens)[0][1:],
        base.compute_logprobs(model, tokens)[0][1:],
        atol=2e-5,
    )
    base.close()
    merged.close()


def test_the_record_tells_kernel_and_thread_count(project, run):
    facts = json.loads((run(project("qwen2")) / "run.json").read_text(encoding="utf-8"))["backend"]
    assert facts["blas"] == json.loads(json.dumps(blas_info()))
    assert facts["blas"]["kernel"]
    assert facts["blas"]["threads"] >= 1
    assert (facts["workers"], facts["dtype"], facts["micro_batch_rows"]) == (2, "float32", 256)


def test_an_adapter_of_peft_is_where_training_starts(project, run, routing, families, tmp_path):
    config = project("qwen3", init_from_checkpoint=str(families / "qwen3" / "adapter"))
    text = config.read_text(encoding="utf-8").replace("lora_rank: 4", "lora_rank: 2, lora_alpha: 6.0")
    config.write_text(text.replace("learning_rate: 0.1", "learning_rate: 1.0e-12"), encoding="utf-8")
    folder = run(config)
    before, after = (
        read_adapter(families / "qwen3" / "adapter"),
        read_adapter(folder / "checkpoints" / str(routing.STEPS)),
    )
    for name, array in before.arrays.items():
        np.testing.assert_allclose(after.arrays[name], array, atol=1e-9)
