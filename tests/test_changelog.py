"""What changed is in fragments, each of which a release can collect."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from house import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
TYPES = [kind["directory"] for kind in SETTINGS["type"]]
FOLDER = ROOT / SETTINGS["directory"]
OTHERS = {"README.md", Path(SETTINGS["template"]).name}
FRAGMENTS = sorted(path for path in FOLDER.iterdir() if path.name not in OTHERS)
MOST_LINES, MOST_WORDS = 40, 60


def faults(name: str, text: str) -> list[str]:
    """What is wrong with a fragment."""
    found = []
    if not re.fullmatch(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(TYPES)})\.md", name):
        found.append(f"{name}: not NAME.TYPE.md with a type of {', '.join(TYPES)}")
    if not re.fullmatch(r"[A-Z`\[*].*[.)]\n", text, re.DOTALL) or "\n\n" in text:
        found.append(f"{name}: not one paragraph of whole sentences that ends with a line feed")
    if len(text.split()) > MOST_WORDS:
        found.append(f"{name}: more than {MOST_WORDS} words")
    return found


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_has_a_valid_name_and_one_short_paragraph(path: Path):
    assert faults(path.name, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("sweep-names.fixed.md", "Names of arms keep the sign of negative values.\n", 0),
        ("sweep-names.bugfix.md", "Names of arms keep the sign of negative values.\n", 1),
        ("Sweep_names.fixed.md", "Names of arms keep the sign of negative values.\n", 1),
        ("names.fixed.md", "- names of arms keep the sign\n", 1),
        ("names.fixed.md", "One.\n\nTwo.\n", 1),
        ("names.fixed.md", "Word " * MOST_WORDS + "word.\n", 1),
    ],
)
def test_a_faulty_fragment_is_found(name: str, text: str, count: int):
    assert len(faults(name, text)) == count


def test_the_readme_of_the_fragments_lists_every_type():
    rows = re.findall(r"^\| `(\w+)` \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == TYPES


def test_the_changelog_says_briefly_what_there_is():
    text = (ROOT / SETTINGS["filename"]).read_text(encoding="utf-8")
    assert len(text.splitlines()) < MOST_LINES
    assert text.count(SETTINGS["start_string"]) == 1
