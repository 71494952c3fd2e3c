"""Plain values to the classes of the model, with problems that know their place in the file."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, get_type_hints

import attrs

from evsys import structure
from evsys.errors import ConfigError, Problem
from evsys_runtime.config import paths
from evsys_runtime.config.document import Document
from evsys_runtime.config.model import ExperimentConfig
from evsys_runtime.config.report import Report
from evsys_runtime.config.scalar_text import quote

__all__ = ["Reader"]

_PLUGINS = (
    *("agent", "algorithm", "backend", "callbacks", "data_store", "deploy", "environment", "inference"),
    *("launcher", "log_store", "search", "transforms"),
)
_MEANT = {
    **dict.fromkeys(_PLUGINS, "kind"),
    "benchmark": "path",
    "data": "path",
    "datasets": "path",
    "model": "name",
}
"""The key that a text in place of a mapping stands for, by the mapping's key."""

_TEXT_FOR_MAPPING = re.compile(r"expected a mapping(?: or a list)?, got '(.*)'\Z", re.DOTALL)

_NO_CHOICE = re.compile(r"'\w+' must be in \((.*)\) \(got (.*)\)\Z", re.DOTALL)
"""How attrs words a value that isn't among the choices of a field."""

_OUT_OF_BOUNDS = re.compile(r"((?:Length of )?'\w+' must be (?:<|<=|>=|>) \S+): (.*)\Z", re.DOTALL)
"""How attrs words a value beyond a bound of a field."""

_TOP = frozenset(field.name for field in attrs.fields(ExperimentConfig))


@attrs.frozen(eq=False)
class Reader:
    """Structures parts of one document and reports what is wrong with them."""

    document: Document
    report: Report

    def add(self, path: str, message: str, hint: str | None = None) -> None:
        """Report a problem at a path of the file."""
        self.report.add(self.document.problem(path, _reworded(message), hint))

    def add_all(self, problems: Collection[Problem]) -> None:
        """Report problems whose paths are those of the file."""
        self.report.add(*map(self.placed, problems))

    def fields(
        self, cls: type, tree: Mapping[str, Any], path: str, *, skip: Collection[str] = ()
    ) -> dict[str, Any]:
        """The fields of `cls` that can be made from a tree, each on its own, so that one bad key hides no other."""
        values: dict[str, Any] = {}
        for key, annotation in get_type_hints(cls).items():
            if key in tree and key not in skip:
                try:
                    values[key] = structure(annotation, tree[key], path=paths.child(path, key))
                except ConfigError as exc:
                    self.add_all(exc.problems)
        try:
            structure(cls, {key: value for key, value in tree.items() if key not in skip}, path=path)
        except ConfigError as exc:
            # Keys that are missing or unknown and values out of bounds; what the fields said is said again, and counts once.
            self.add_all(exc.problems)
            refused = {problem.path for problem in exc.problems}
            values = {key: value for key, value in values.items() if paths.child(path, key) not in refused}
        return values

    def placed(self, problem: Problem, suffix: str = "") -> Problem:
        """A problem of structuring with its place, and with the hints that only the file can give."""
        message, hint = _reworded(problem.message), problem.hint
        literal = self.document.literals.get(problem.path)
        if literal is not None and hint and hint.startswith("write it in quotes"):
            hint = quote(self.document, problem.path, literal)
        elif problem.path == "$.version":
            hint = "this evsys reads version 1"
        elif message.startswith("unknown key ") and (key := self._misplaced_key(problem.path)):
            hint = f"{key!r} belongs at the top level of the file"
        elif (meant := self._meant_key(problem.path)) and (given := _TEXT_FOR_MAPPING.match(message)):
            hint = f"write {{{meant}: {given[1]}}}"
        return self.document.problem(problem.path, f"{message}{suffix}", hint)

    def _misplaced_key(self, path: str) -> str | None:
        """The key at the end of `path`, if it is one of the file itself that was put into one of its blocks."""
        block, *below = paths.parse(path)
        return (
            str(below[0]) if len(below) == 1 and block in ("metadata", "run") and below[0] in _TOP else None
        )

    def _meant_key(self, path: str) -> str | None:
        """The key that a text in place of the mapping at `path` would be the value of."""
        keys = [segment for segment in paths.parse(path) if isinstance(segment, str)] if path != "$" else []
        return _MEANT.get(keys[-1]) if keys else None


def _reworded(message: str) -> str:
    """A message of attrs in the words of the others; any other message as it is."""
    if given := _NO_CHOICE.match(message):
        return f"expected one of {given[1].rstrip(',')}, got {given[2]}"
    if given := _OUT_OF_BOUNDS.match(message):
        return f"{given[1]}, got {given[2]}"
    return message
