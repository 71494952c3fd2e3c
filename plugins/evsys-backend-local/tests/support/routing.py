"""A stand-in for the tool-routing task, small enough for the families' random checkpoints."""

import json
from pathlib import Path

from ruamel.yaml import YAML

from evsys_backend_local.models.byte_tokenizer import write_byte_tokenizer
from evsys_sdk import Experiment

ROUTES = {"mail": "GMAIL", "meet": "CALENDAR", "file": "DRIVE"}
STEPS = 40
CHECKPOINTS = Path(__file__).parents[1] / "models" / "families"


def write(folder, family, **model):
    """The experiment file; the family's checkpoint is a base model beside it, in a folder of the family's name."""
    rows = [{"q": f"{verb} {word}", "a": slug} for word, slug in ROUTES.items() for verb in ("my", "a")]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    home = folder / family
    home.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        (home / name).write_bytes((CHECKPOINTS / family / name).read_bytes())
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
    path = folder / f"{family}.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(config, file)
    return path


def run(path):
    """The folder of the one run, once its experiment is through."""
    result = Experiment.from_yaml(path).run()
    assert result.status == "completed", result
    (folder,) = path.parent.glob(f".evsys/experiments/*{path.stem}/runs/*")
    return folder
