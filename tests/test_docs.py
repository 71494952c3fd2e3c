"""Documents tell the truth as far as a machine can check it: links lead somewhere, what they name is there."""

import ast
import re
from pathlib import Path

import pytest
from house import ROOT, distributions
from ruamel.yaml import YAML
from snippets import blocks, documents

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
    for block in blocks(path, "python"):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
        compile(block.code, str(block), "exec", flags=flags)


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
    named = {file.partition("/")[0] for file, _ in places(ROOT / "docs/explanation/onboarding.md")}
    assert named >= set(SOURCES) - {
        *(
            "evsys_agents",
            "evsys_autoresearch",
            "evsys_conformance",
            "evsys_sdk",
            "evsys_backend_mock",
            "evsys_dashboard",
            "evsys_server",
            "evsys_deployers",
            "evsys_traces",
        ),
    }


def test_the_readme_shows_the_quickstart_as_it_is():
    yaml = YAML(typ="safe", pure=True)
    (shown,) = [block.code for block in blocks(ROOT / "README.md", "yaml") if "version: 1" in block.code]
    assert yaml.load(shown) == yaml.load(
        (ROOT / "examples/quickstart/config.yaml").read_text(encoding="utf-8")
    )


def named(nav: object) -> list[str]:
    """The pages that the navigation names, in its order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in named(part)]


def test_the_navigation_names_every_page_once():
    settings = YAML(typ="safe", pure=True).load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    there = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(named(settings["nav"])) == sorted(there)


def words(path: Path) -> int:
    """The words of a page outside its code blocks."""
    prose = re.sub(r"^ *```.*?^ *```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return len(prose.split())


GUIDES = sorted(path for path in (ROOT / "docs/how-to").glob("*.md") if path.stem != "index")


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_a_how_to_guide_is_short_runs_and_is_listed(path: Path):
    assert words(path) <= 400
    assert any(block.reason is None for block in blocks(path, "bash", "yaml", "python", "json"))
    assert f"({path.name})" in (path.parent / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_installing_is_on_the_first_screen(page: str):
    screen = (ROOT / page).read_text(encoding="utf-8").splitlines()[:15]
    assert "pip install evsys-sdk" in screen


def test_the_index_has_at_most_twelve_links():
    assert len(re.findall(r"\]\(", (ROOT / "docs/index.md").read_text(encoding="utf-8"))) <= 12


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("resume", "resume-a-run"),
        ("early stopping", "stop-early"),
        ("significance", "test-significance"),
        ("ablation", "run-an-ablation"),
        ("learning rate sweep", "sweep-the-learning-rate"),
        ("replicate", "replicate-a-result"),
        ("leaks", "avoid-leaks"),
    ],
)
def test_a_search_finds_the_guide_by_its_headings(query: str, page: str):
    """Titles and headings weigh most in the site's search, so each word of the query has to be in one."""
    text = (ROOT / "docs/how-to" / f"{page}.md").read_text(encoding="utf-8")
    headings = " ".join(re.findall(r"^#+ (.*)$", text, re.MULTILINE)).lower()
    assert [word for word in query.split() if word not in headings] == []
