"""Texts of an experiment file that a reader may take for something else: numbers that lose their spelling, and `${NAME}` in keys where no
variable is put in.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from evsys.errors import Problem
from evsys_runtime.config import paths, placeholders, trees
from evsys_runtime.config.document import Document
from evsys_runtime.config.scalars import describe

__all__ = ["REPLACED", "misread", "quote", "unset_in_prompts"]

REPLACED = "plugin params and `system_prompt`"
"""The keys in which `${NAME}` is an environment variable."""

_PARAMS, _PROMPT, _ROWS = "params", "system_prompt", "rows"
_FILES = frozenset({"path", "output_dir"})
"""Keys whose check refuses `${NAME}` itself."""

_PLAIN = re.compile(r"(-?(0|[1-9][0-9]*)|true|false|null|~|)\Z")
"""Spellings that are what their value is written as, or that mean no text."""

_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+\Z")


def misread(document: Document) -> list[str]:
    """A warning, with its place, for each text that isn't what it looks like."""
    return [str(problem) for problem in (*_spellings(document), *_placeholders(document))]


def unset_in_prompts(document: Document) -> Iterator[Problem]:
    """A problem for each variable that the `system_prompt` of a benchmark entry names and that isn't set."""
    for path, name in _find_scalars(document):
        keys = _keys(path)
        if keys[-1] == _PROMPT and _PARAMS not in keys and name not in os.environ:
            message = f"the environment variable {name} isn't set"
            yield document.problem(path, message, f"export {name}=...")


def quote(document: Document, path: str, literal: str) -> str:
    """How to write a scalar so that it is text: in the file, or in the option that set it."""
    if path in document.overrides:
        return f"write {document.overrides[path]}='\"{literal}\"'"
    return f'write it in quotes: "{literal}"'


def _spellings(document: Document) -> Iterator[Problem]:
    """Unquoted scalars of inline rows, one of each column, and of params, whose value is written otherwise."""
    columns: dict[str, list[tuple[str, str]]] = {}
    for path, literal in document.literals.items():
        if _PLAIN.match(literal):
            continue
        keys = _keys(path)
        value = trees.get(document.tree, paths.parse(path))
        if isinstance(value, str) or value is trees.MISSING:
            continue
        if _ROWS in keys:
            if literal != json.dumps(value):
                columns.setdefault(keys[-1], []).append((path, literal))
        elif _PARAMS in keys and _LEADING_ZERO.match(literal):
            columns.setdefault(path, []).append((path, literal))
    for found in columns.values():
        path, literal = found[0]
        more = f", as are {len(found) - 1} more of its column" if len(found) > 1 else ""
        value = describe(trees.get(document.tree, paths.parse(path)))
        hint = f"if it is text, {quote(document, path, literal)}"
        yield document.problem(path, f"{literal} is read as {value}{more}", hint)


def _placeholders(document: Document) -> Iterator[Problem]:
    for path, name in _find_scalars(document):
        keys = _keys(path)
        if _PARAMS in keys or keys[-1] in _FILES or keys[-1] == _PROMPT or _ROWS in keys:
            continue
        message = f"${{{name}}} stays as it is written: variables are put into {REPLACED} only"
        yield document.problem(path, message)


def _find_scalars(document: Document) -> list[tuple[str, str]]:
    return list(placeholders.find(document.tree)) if placeholders.mentions(document.tree) else []


def _keys(path: str) -> list[str]:
    """The keys on a path, those of a matrix axis (`algorithm.params.steps`) one by one."""
    segments = () if path == "$" else paths.parse(path)
    return [key for segment in segments if isinstance(segment, str) for key in segment.split(".")] or [""]
