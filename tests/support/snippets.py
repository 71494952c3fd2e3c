"""The code blocks of documents: where they stand, what they hold, and why one isn't run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from house import ROOT

IGNORED = {
    ".venv",
    ".nox",
    ".git",
    ".pytest_cache",
    "node_modules",
    "site",
    ".evsys",
    "data",
    "build",
    "dist",
}

# A block that can't be run says so in the line above it: <!-- not run: why -->
MARK = re.compile(r"^ *<!-- not run: (?P<reason>.*\S) -->$")
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)(?P<rest>[^\n`]*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is that of its fence; `reason` why it isn't run, or None."""

    path: Path
    line: int
    language: str
    code: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT).as_posix()}:{self.line}"


def documents() -> list[Path]:
    """Every document of the repository."""
    return [path for path in sorted(ROOT.rglob("*.md")) if not IGNORED & set(path.relative_to(ROOT).parts)]


def blocks(path: Path, *languages: str) -> list[Block]:
    """The blocks of a document in their order, those of some languages or all; indentation of lists is taken off."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    found: list[Block] = []
    number = 0
    while number < len(lines):
        opened = FENCE.match(lines[number].rstrip("\n"))
        number += 1
        if opened is None:
            continue
        start, body = number, []
        while number < len(lines) and lines[number].strip() != "```":
            body.append(lines[number].removeprefix(opened["indent"]))
            number += 1
        number += 1
        mark = MARK.match(lines[start - 2].rstrip("\n")) if start > 1 else None
        reason = mark["reason"] if mark else None
        found.append(Block(path, start, opened["language"], "".join(body), reason))
    return [block for block in found if not languages or block.language in languages]


def marks(path: Path) -> list[int]:
    """The lines of a document that say that something isn't run."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, start=1) if line.lstrip().startswith("<!-- not run")]
