"""Writing a scaffold: templates to files, never over something that exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

__all__ = ["write_new", "write_scaffold"]

SUFFIX = ".template"
"""Ends the name of every template, so that no tool takes one for the thing it becomes."""


def _templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    for item in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = f"{prefix}{item.name}"
        if item.is_dir():
            yield from _templates(item, f"{name}/")
        elif name.endswith(SUFFIX):
            yield name.removesuffix(SUFFIX).replace("dot-", "."), item.read_text(encoding="utf-8")


def write_new(path: Path, text: str) -> bool:
    """Write a file with its folders; False where there is one already, which is left alone.

    Raises:
        StoreError: it can't be written.
    """
    from evsys_record.files import storing

    with storing(path):
        if path.exists():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    return True


def write_scaffold(
    kind: str, target: Path, values: Mapping[str, str], place: Callable[[str], str] = str
) -> tuple[list[Path], list[Path]]:
    """Write the scaffold `kind` into `target`; returns the files written and those left alone because they existed.

    Args:
        kind: the folder of templates.
        target: the folder to write to.
        values: for the variables in templates and in their names.
        place: turns the name of a template, variables included, into that of its file.
    """
    written: list[Path] = []
    kept: list[Path] = []
    for name, text in _templates(files("evsys_cli.scaffold") / kind):
        path = target / Template(place(name)).substitute(values)
        (written if write_new(path, Template(text).substitute(values)) else kept).append(path)
    return written, kept
