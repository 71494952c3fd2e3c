"""Documents tell the truth as far as a machine can check it: links lead somewhere, code parses, commands exist."""

import ast
import json
import re
from pathlib import Path

import pytest
from house import ROOT, distributions
from ruamel.yaml import YAML

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


SOURCES = {dist.import_name: dist.package.parent for dist in distributions()}


def places(path: Path) -> list[tuple[str, str | None]]:
    """Source files that a document names from their import name, each with the symbol that follows, if any."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(r"`(evsys\w*/[\w/]*\w(?:\.py|/))`(?: `(\w+(?:\.\w+)?)`)?", text)
    return [(file, symbol or None) for file, symbol in found]


def defines(path: Path, symbol: str) -> bool:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for name in symbol.split("."):
        inner = [node for node in body if getattr(node, "name", None) == name]
        if not inner:
            return False
        body = getattr(inner[0], "body", [])
    return True


@each
def test_source_files_and_symbols_that_are_named_exist(path: Path):
    for file, symbol in places(path):
        source = SOURCES[file.partition("/")[0]] / file
        assert source.exists(), file
        assert symbol is None or defines(source, symbol), f"{file} has no {symbol}"


def test_the_onboarding_page_names_places_in_every_distribution_that_a_run_passes():
    named = {file.partition("/")[0] for file, _ in places(ROOT / "docs/onboarding.md")}
    assert named >= set(SOURCES) - {"evsys_conformance", "evsys_sdk", "evsys_backend_mock"}


def test_the_readme_shows_the_quickstart_as_it_is():
    yaml = YAML(typ="safe", pure=True)
    ((_, shown),) = [block for block in blocks(ROOT / "README.md", "yaml") if "version: 1" in block[1]]
    assert yaml.load(shown) == yaml.load(
        (ROOT / "examples/quickstart/config.yaml").read_text(encoding="utf-8")
    )
