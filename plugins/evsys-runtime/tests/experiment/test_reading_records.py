"""Project memory and estimates read records through `evsys_record` alone."""

import ast
from pathlib import Path

import pytest

import evsys_runtime.experiment

ROOM = Path(evsys_runtime.experiment.__file__).parent
READING = {"open", "read_text", "read_bytes", "iterdir", "glob", "rglob", "connect", "load", "scandir"}


@pytest.mark.parametrize(
    "path",
    [path for folder in ("insight", "estimate") for path in sorted((ROOM / folder).glob("*.py"))],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_no_file_is_opened_in_these_rooms(path: Path):
    calls = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    names = [
        call.attr if isinstance(call, ast.Attribute) else call.id
        for call in calls
        if isinstance(call, ast.Attribute | ast.Name)
    ]
    assert [name for name in names if name in READING] == []
