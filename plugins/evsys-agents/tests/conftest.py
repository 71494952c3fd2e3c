from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from evsys_agents.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with data, sealed tasks and code, and no experiment."""
    root = tmp_path / "lab"
    files = {
        "pyproject.toml": "[tool.evsys]\n",
        "data/validation/val/tasks.jsonl": '{"verifier": {"name": "near", "expected": "a"}}\n',
        "data/benchmark/final/tasks.jsonl": '{"instruction": "sealed"}\n',
        "data/datasets/letters/v1/train.jsonl": "{}\n",
        "data/datasets/letters/v1/test.jsonl": "{}\n",
        "src/verifiers.py": '@register_verifier_fn("near")\ndef near(): ...\n',
        "src/transforms.py": '@register_transform("clean")\ndef clean(): ...\n',
        "experiments/first/config.yaml": "version: 1\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return Project(root)


@pytest.fixture
def running(project: Project) -> str:
    """An experiment of the project that a process holds."""
    return start(project, "20260101-000000-first", benchmarks=[{"name": "val", "path": None, "split": "val"}])


def start(project: Project, experiment: str, **resolved: Any) -> str:
    """Write what a running experiment has on record."""
    folder = project.experiments / experiment
    folder.mkdir(parents=True)
    facts = {
        "status": "running",
        "hypothesis": "More rows help.",
        "created": "2026-01-01",
        "arms": [{"run_id": "a-s0"}],
    }
    (folder / "experiment.json").write_text(json.dumps(facts), encoding="utf-8")
    (folder / "resolved.json").write_text(json.dumps(resolved), encoding="utf-8")
    (folder / ".lock").write_text(json.dumps({"pid": 1, "since": time.time()}), encoding="utf-8")
    return experiment
