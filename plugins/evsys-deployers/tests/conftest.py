import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from gated_project import CONFIG, tasks

from evsys_runtime.experiment import Experiment


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("gate")
    (root / "pyproject.toml").write_text("[tool.evsys]\n")
    rows = [{"prompt": f"say {place}", "completion": "a"} for place in range(16)]
    (root / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks(root / "gate.jsonl", "gate")
    tasks(root / "steering.jsonl", "steering")
    (root / "config.yaml").write_text(CONFIG)
    result = Experiment.from_yaml(root / "config.yaml", quiet=True).run()
    assert result.status == "completed"
    return root, f"{result.experiment_id}/run-s0"


@pytest.fixture
def project(trained, tmp_path, monkeypatch):
    """A copy of the project, and the name of its run."""
    root, run = trained
    shutil.copytree(root, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("COLUMNS", "200")
    return run
