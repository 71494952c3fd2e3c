"""Counts phrases that make prose read like a translation, as rates per 10,000 words.

    python prose.py FILE...     # prints each place

The patterns are the ones that set this project apart from others of its kind (tox, attrs, inspect, verifiers), whose rates are the
limits to reach. `Source` is a body of prose with limits of its own, so that docstrings and messages can join the documents.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_START = r"(?:^|(?<=[.!?:] )|(?<=\| )|(?<=\* ))"
"""The beginning of a sentence, of a table's cell, or of an item."""

PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.MULTILINE)
    for name, pattern in {
        "tell, told": r"\b(?:[Tt]ell|[Tt]ells|[Tt]old|[Tt]elling)\b",  # report, print, show, state, warn
        "go on": r"\b[Gg](?:o|oes|oing|one) on\b|\b[Ww]ent on\b",  # continue, resume
        "stands": r"\b[Ss]t(?:and|ands|ood)\b",  # is, appears, is set
        "Where ...": rf"{_START}Where\b(?![^.!?|]*\?)",  # If, When
        "What ...": rf"{_START}What\b(?![^.!?|]*\?)",  # a noun
        "beside": r"\b[Bb]eside\b",  # next to, alongside, in addition to
        "whoever, whatever": r"\b[Ww](?:hoever|hatever|hichever)\b",  # any, regardless of
        "nobody": r"\b(?:[Nn]obody|[Ss]omebody|[Aa]nybody|[Ee]verybody)\b",  # the actor, or the passive
        "anew": r"\b[Aa]new\b|\bonce more\b",  # again, re-
        ", too": r", too\b",  # also
        "that is": r"\bthat (?:is|are|was|were)\b",  # a participle
        "is no": r"(?<![Tt]here )\b(?:is|are) no\b(?! longer\b)",  # is not a
    }.items()
}


@dataclass(frozen=True)
class Source:
    """A body of prose. `limits` are rates per 10,000 words by the names of `PATTERNS`."""

    name: str
    texts: Callable[[], Iterable[str]]
    limits: Mapping[str, float]


def prose_of(page: str) -> str:
    """A Markdown page without code, link targets and comments."""
    text = re.sub(r"^ *```.*?^ *```$|<!--.*?-->", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "`x`", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def rates(texts: Iterable[str]) -> dict[str, float]:
    """How often each pattern comes up, per 10,000 words of all texts."""
    found = dict.fromkeys(PATTERNS, 0)
    words = 0
    for text in texts:
        words += len(re.findall(r"\w+", text))
        for name, pattern in PATTERNS.items():
            found[name] += len(pattern.findall(text))
    return {name: 10_000 * count / max(words, 1) for name, count in found.items()}


def places(text: str) -> Iterable[tuple[str, str]]:
    """Each match with its pattern and the words around it."""
    for name, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            yield name, " ".join(text[max(0, match.start() - 60) : match.end() + 60].split())


if __name__ == "__main__":
    for file in sys.argv[1:]:
        for name, words in places(prose_of(Path(file).read_text(encoding="utf-8"))):
            sys.stdout.write(f"{file}: {name}: {words}\n")
