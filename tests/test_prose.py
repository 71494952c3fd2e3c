"""The documents read like those of comparable projects: phrases of a translation are as rare in them as in tox and attrs.

`python tests/support/prose.py FILE...` prints each place. Docstrings and messages join `SOURCES` with limits of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from house import ROOT
from prose import PATTERNS, Source, prose_of, rates

LINE = 120
"""Most characters of a line of prose; tables, links and code may be longer."""


def documents() -> Iterable[str]:
    """The pages that people write; those of the kinds are generated from docstrings and messages."""
    for path in PAGES:
        yield prose_of(path.read_text(encoding="utf-8"))


def trees() -> Iterator[ast.Module]:
    """The modules of all distributions, without their tests and examples."""
    for folder in (
        ROOT / "core",
        ROOT / "evsys-cli",
        ROOT / "conformance-tests",
        *(ROOT / "plugins").iterdir(),
    ):
        for path in sorted((folder / "src").rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def docstrings() -> Iterable[str]:
    """Of modules, classes, functions and constants."""
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield prose_of(str(node.value.value))


def messages() -> Iterable[str]:
    """Texts of three words and more that aren't docstrings: messages, hints, help. Values in them are an x."""
    for tree in trees():
        inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                inside |= {id(part) for part in ast.walk(node)}
                parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
                yield from _words("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                yield from _words(node.value)


def _words(text: str) -> Iterable[str]:
    return [prose_of(text)] if len(text.split()) >= 3 else []


PAGES = [
    path
    for path in [
        *sorted((ROOT / "docs").rglob("*.md")),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    ]
    if path.parent.name != "kinds"
]
SOURCES = [
    Source(
        "documents",
        documents,
        {
            "tell, told": 1,
            "go on": 0.5,
            "stands": 1,
            "Where ...": 1.5,
            "What ...": 2.5,
            "beside": 1,
            "whoever, whatever": 2,
            "nobody": 0.5,
            "anew": 0.5,
            ", too": 0.5,
            "that is": 17.5,
            "is no": 2,
        },
    ),
    Source(
        "docstrings",
        docstrings,
        {
            "tell, told": 2,
            "go on": 0.5,
            "stands": 1,
            "Where ...": 0.5,
            "What ...": 1,
            "beside": 0.5,
            "whoever, whatever": 2,
            "nobody": 0.5,
            "anew": 0.5,
            ", too": 0.5,
            "that is": 17.5,
            "is no": 0.5,
        },
    ),
    Source(
        "messages",
        messages,
        {
            "tell, told": 1,
            "go on": 1,
            "stands": 1,
            "Where ...": 0.5,
            "What ...": 1,
            "beside": 1,
            "whoever, whatever": 1,
            "nobody": 0.5,
            "anew": 0.5,
            ", too": 0.5,
            "that is": 9.5,
            "is no": 1,
        },
    ),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_phrases_of_a_translation_are_rare(source: Source):
    found = rates(source.texts())
    assert {name: round(rate, 1) for name, rate in found.items() if rate > source.limits[name]} == {}


def test_every_pattern_has_a_limit_in_every_source():
    assert [source.name for source in SOURCES if set(source.limits) != set(PATTERNS)] == []


@pytest.mark.parametrize(
    ("name", "found", "passed"),
    [
        ("tell, told", "it is told so", "a teller"),
        ("go on", "Training goes on.", "ongoing"),
        ("stands", "as it stands", "standard"),
        ("Where ...", "It ends. Where it fails, it says so.", "Where does it run?"),
        ("What ...", "| What is kept | x |", "it says what it did"),
        ("beside", "beside it", "besides it"),
        ("whoever, whatever", "whatever happens", "what happens"),
        ("nobody", "nobody knows", "no body"),
        ("anew", "made anew", "a newer one"),
        (", too", "that, too", "too long"),
        ("that is", "a run that was killed", "that killed it"),
        ("is no", "'x' is no number", "it is no longer there"),
    ],
)
def test_a_pattern_finds_the_phrase_and_nothing_like_it(name: str, found: str, passed: str):
    assert PATTERNS[name].search(found)
    assert not PATTERNS[name].search(passed)


def test_a_rate_is_per_ten_thousand_words_without_code():
    page = "it is told\n\n```text\ntold told\n```\n\nto [him](told.md) `told` <!-- told -->\n"
    assert rates([prose_of(page)])["tell, told"] == 10_000 / 6


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lines_of_prose_are_short(path: Path):
    text = re.sub(
        r"^ *```.*?^ *```$|<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert [line for line in prose if len(line) > LINE and " " in line[:LINE].strip()] == []


# --- the glossary -------------------------------------------------------------------------------------------------------


GLOSSARY = ROOT / "docs/reference/glossary.md"
OTHER_WORDS = {
    "evaluation": r"\b[Ss]coring\b(?! model)",
    "evaluate": r"\b(?:is|are|was|were|be|been) scored\b",
}
"""Words for concepts that the glossary has another word for, and the most that may be left, by pattern."""


def terms() -> list[str]:
    rows = re.findall(r"^\| ([a-z][a-z ]*) \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return [row for row in rows if row != "term"]


def test_the_glossary_is_short_and_sorted():
    assert len(terms()) <= 40
    assert terms() == sorted(set(terms()))


def test_every_term_is_used_in_several_pages():
    pages = {path: path.read_text(encoding="utf-8").lower() for path in PAGES if path != GLOSSARY}
    used = {term: sum(bool(re.search(rf"\b{term}s?\b", text)) for text in pages.values()) for term in terms()}
    assert {term: count for term, count in used.items() if count < 3} == {}


@pytest.mark.parametrize("term", OTHER_WORDS)
def test_one_concept_has_one_word(term: str):
    """Of tutorials, guides and explanations, which teach the words; keys and messages of older versions still differ."""
    taught = [path for path in PAGES if path.parent.name in {"tutorial", "how-to", "explanation"}]
    found = {
        path.name: re.findall(OTHER_WORDS[term], prose_of(path.read_text(encoding="utf-8")))
        for path in taught
    }
    assert {name: words for name, words in found.items() if words} == {}
