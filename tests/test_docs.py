"""Documents tell the truth as far as a machine can check it: links lead somewhere, code parses, commands exist."""

import ast
import json
import re
from pathlib import Path

import pytest
from house import ROOT

IGNORED = {".venv", ".nox", ".git", "node_modules", "site", ".evsys", "data", "build", "dist"}


def documents() -> list[Path]:
    return [path for path in sorted(ROOT.rglob("*.md")) if not IGNORED & set(path.relative_to(ROOT).parts)]


def blocks(path: Path, *languages: str) -> list[tuple[int, str]]:
    """(line, code) of each fenced block of a language; blocks inside lists lose their indentation."""
    found = []
    text = path.read_text(encoding="utf-8")
    for match in re.finditer(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", text, flags=re.MULTILINE | re.DOTALL):
        indent, language, body = match.groups()
        if language in languages:
            code = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
            found.append((text.count("\n", 0, match.start()) + 1, code))
    return found


each = pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())


@each
def test_links_lead_to_files(path: Path):
    prose = re.sub(
        r"^ *```.*?^ *```$|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", prose)]
    local = [target for target in targets if target and not re.match(r"\w+:", target)]
    assert [target for target in local if not (path.parent / target).exists()] == []


@each
def test_python_blocks_parse(path: Path):
    for line, code in blocks(path, "python", "py"):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
        compile(code, f"{path.relative_to(ROOT)}:{line}", "exec", flags=flags)


@each
def test_json_blocks_parse(path: Path):
    for _, code in blocks(path, "json"):
        json.loads(code)
