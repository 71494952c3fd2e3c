"""Tasks and files of them, for projects of tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def task(name: str, **changes: Any) -> dict[str, Any]:
    verifier = {"name": "exact_match", "expected": "x"}
    return {
        "task_id": name,
        "instruction": f"say {name}",
        "verifier": verifier,
        "metadata": {"topic": "t"},
    } | changes


def write_tasks(path: Path, tasks: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in tasks), encoding="utf-8")
    return path


def cached(project: Path, entry_id: str, rows: list[Any], *, kind: str = "benchmarks") -> None:
    """An entry of the project's cache, as whoever pulled it left it."""
    folder = project / ".evsys" / "cache" / kind / entry_id
    folder.mkdir(parents=True)
    write_tasks(folder / "rows.jsonl", rows)
    (folder / "manifest.json").write_text("{}", encoding="utf-8")


PASSES = "echo 1 > /logs/verifier/reward.txt\n"
"""A test script that rewards whatever was done."""


def native_task(
    folder: Path,
    *,
    instruction: str = "Do it.",
    test: str = PASSES,
    settings: str = "",
    steps: Mapping[str, str] | None = None,
) -> Path:
    """A folder as Harbor's tasks are: `steps` maps the names of a task of several steps to their test scripts."""
    folder.mkdir(parents=True)
    tables = "".join(f'[[steps]]\nname = "{name}"\n' for name in steps or {})
    text = f'schema_version = "1.4"\n{settings}\n{tables}'
    (folder / "task.toml").write_text(text, encoding="utf-8")
    places = {folder / "steps" / name: script for name, script in (steps or {}).items()} or {folder: test}
    for place, script in places.items():
        (place / "tests").mkdir(parents=True)
        (place / "instruction.md").write_text(instruction, encoding="utf-8")
        (place / "tests" / "test.sh").write_text(f"#!/bin/bash\n{script}", encoding="utf-8")
    return folder
