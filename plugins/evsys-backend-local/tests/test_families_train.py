"""Each family goes the whole way: an experiment trains it, its checkpoint is exported, the export is a base model."""

import json

import numpy as np
import pytest
from ruamel.yaml import YAML

from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.workers import blas_info
from evsys_backend_local.models.adapter import read_adapter
from evsys_backend_local.models.byte_tokenizer import write_byte_tokenizer
from evsys_backend_local.models.export import export_model
from evsys_backend_local.models.resolve import load_base
from evsys_sdk import Experiment

FAMILIES = ["llama", "smollm2", "mistral", "qwen2", "qwen3"]
ROUTES = {"mail": "GMAIL", "meet": "CALENDAR", "file": "DRIVE"}
STEPS = 40


@pytest.fixture
def project(tmp_path, families, monkeypatch):
    """A project with a stand-in for tool routing, and base models as folders."""
    rows = [{"q": f"{verb} {word}", "a": slug} for word, slug in ROUTES.items() for verb in ("my", "a")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def write(family, **model):
        home = tmp_path / family
        home.mkdir(exist_ok=True)
        (home / "config.json").write_bytes((families / family / "config.json").read_bytes())
        (home / "model.safetensors").write_bytes((families / family / "model.safetensors").read_bytes())
        write_byte_tokenizer(home)
        config = {
            "version": 1,
            "name": f"routing-{family}",
            "description": "A stand-in for tool routing.",
            "metadata": {"hypothesis": "It learns the three routes."},
            "run": {
                "data": {
                    "source_kind": "jsonl",
                    "path": "rows.jsonl",
                    "transforms": [{"kind": "jsonl_to_chat", "params": {"user": "q", "assistant": "a"}}],
                },
                "model": {"name": str(home), **model},
                "algorithm": {
                    "kind": "sft",
                    "params": {"learning_rate": 0.1, "steps": STEPS, "batch_size": 6, "lora_rank": 4},
                },
                "backend": {"kind": "local", "params": {"workers": 2}},
            },
        }
        path = tmp_path / f"{family}.yaml"
        with path.open("w", encoding="utf-8") as file:
            YAML(typ="safe").dump(config, file)
        return path

    return write


def run(path):
    """The folder of the one run, once its experiment is through."""
    result = Experiment.from_yaml(path).run()
    assert result.status == "completed", result
    (folder,) = path.parent.glob(f".evsys/experiments/*{path.stem}/runs/*")
    return folder


def losses(folder):
    lines = (folder / "training" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["values"]["loss"] for row in map(json.loads, lines)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_learns_saves_and_is_exported(project, family, tmp_path):
    folder = run(project(family))
    curve = losses(folder)
    assert curve[-1] < 0.85 * curve[0]
    assert curve[-1] < np.log(259)  # what guessing costs
    checkpoint = folder / "checkpoints" / str(STEPS)
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


def test_the_record_tells_kernel_and_thread_count(project):
    facts = json.loads((run(project("qwen2")) / "run.json").read_text(encoding="utf-8"))["backend"]
    assert facts["blas"] == json.loads(json.dumps(blas_info()))
    assert facts["blas"]["kernel"]
    assert facts["blas"]["threads"] >= 1
    assert (facts["workers"], facts["dtype"], facts["micro_batch_rows"]) == (2, "float32", 256)


def test_an_adapter_of_peft_is_where_training_starts(project, families, tmp_path):
    config = project("qwen3", init_from_checkpoint=str(families / "qwen3" / "adapter"))
    text = config.read_text(encoding="utf-8").replace("lora_rank: 4", "lora_rank: 2, lora_alpha: 6.0")
    config.write_text(text.replace("learning_rate: 0.1", "learning_rate: 1.0e-12"), encoding="utf-8")
    folder = run(config)
    before, after = (
        read_adapter(families / "qwen3" / "adapter"),
        read_adapter(folder / "checkpoints" / str(STEPS)),
    )
    for name, array in before.arrays.items():
        np.testing.assert_allclose(after.arrays[name], array, atol=1e-9)
