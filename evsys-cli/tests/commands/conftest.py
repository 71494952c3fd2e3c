"""A project with plugins of its own, which is the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

METRIC = """
from evsys_sdk import register_metric

print("imported")


@register_metric("half")
class Half:
    direction = "max"

    def compute(self, task_rewards):
        return 0.5
"""


class Project:
    """A folder that `[tool.evsys]` marks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("pyproject.toml", "[tool.evsys]\n")

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("src/metrics.py", METRIC)
    return made
