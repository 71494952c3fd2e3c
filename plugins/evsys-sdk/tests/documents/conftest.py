"""A project as `evsys init-project` makes it, with rows and tasks of a small routing problem.

Nothing here needs the repository: `nox -s wheels` runs this folder elsewhere, on installed wheels.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evsys import Registry, use_registry
from evsys_sdk import Experiment, ExperimentResult

COMMAND = "import sys; from evsys_cli.main import main; sys.exit(main())"
TOOLS = {"send it": "mail", "book it": "calendar", "find it": "search"}


class Lab:
    """A project, which is the working directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, content: str | list[dict[str, Any]]) -> Path:
        """Write a file: a text, or a line for each row."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
        path.write_text(lines, encoding="utf-8")
        return path

    def rows(self, path: Path) -> list[dict[str, Any]]:
        """The rows of a JSONL file."""
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def config(self, text: str, name: str = "experiment.yaml") -> Path:
        """Write an experiment file."""
        return self.write(name, f"version: 1\nname: trial\n{text}")

    def experiment(self, text: str, **options: Any) -> Experiment:
        """The experiment of a file with this text."""
        return Experiment.from_yaml(self.config(text), quiet=True, **options)

    def run(self, text: str, **options: Any) -> ExperimentResult:
        """Run the experiment of a file with this text."""
        return self.experiment(text, **options).run()

    def evsys(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project."""
        return subprocess.run(
            [sys.executable, "-c", COMMAND, *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )

    def python(self, script: Path) -> subprocess.CompletedProcess[str]:
        """Run a script in its own folder."""
        command = [sys.executable, script.name]
        return subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=False)


def tasks(count: int, verifier: str = "contains") -> list[dict[str, Any]]:
    """Tasks with a metadata key `tool`."""
    texts = list(TOOLS)
    return [
        {
            "task_id": f"route-{n:02d}",
            "instruction": f"Case {n}, in other words than any row: {texts[n % len(texts)]}",
            "verifier": {"name": verifier, "expected": "a"},
            "metadata": {"tool": TOOLS[texts[n % len(texts)]]},
        }
        for n in range(count)
    ]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project, made once."""
    folder = tmp_path_factory.mktemp("new")
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "init-project", "lab"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "lab"


@pytest.fixture
def lab(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    root = tmp_path / "lab"
    shutil.copytree(made, root)
    monkeypatch.chdir(root)
    project = Lab(root)
    rows = [{"query": text, "tool": tool} for text, tool in TOOLS.items()] * 8
    project.write("data/train.jsonl", rows)
    project.write("data/val/tasks.jsonl", tasks(12))
    project.write("data/test/tasks.jsonl", tasks(12))
    before = {name for name in sys.modules if name.partition(".")[0] == "src"}
    with use_registry(Registry()):
        yield project
    for name in [name for name in sys.modules if name.partition(".")[0] == "src"]:
        if name not in before:
            del sys.modules[name]
