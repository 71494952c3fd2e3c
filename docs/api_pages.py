"""The reference pages of `evsys.types`, the protocols of a run, and the hooks: their source without bodies."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import evsys.types
from evsys import hookspecs, protocols

__all__ = ["NOT_RUN", "api_pages"]

NOT_RUN = "<!-- not run: a signature, to read -->"
_WRITTEN = "<!-- Written by docs/generate.py, from the source. -->"


def api_pages(elsewhere: Iterable[str]) -> dict[str, str]:
    """The text of each page by its file name. `elsewhere` are the protocols that the pages of the kinds show."""
    return {
        "hooks.md": _hooks_page(),
        "protocols.md": _protocols_page(set(elsewhere)),
        "types.md": _types_page(),
    }


def _hooks_page() -> str:
    source = Source(inspect.getsource(hookspecs))
    return _page(
        "Hook arguments",
        "[Hooks](../hooks.md) has the rules. All arguments are passed by keyword; implementations take any of them.",
        [_code(source.outline(node) for node in source.definitions if node.name in hookspecs.HOOKS)],
    )


def _protocols_page(elsewhere: set[str]) -> str:
    source = Source(inspect.getsource(protocols))
    nodes = [node for node in source.definitions if node.name in {*protocols.__all__} - elsewhere]
    return _page(
        "Protocols of a run",
        "The members of a `RunContext` (see [types](types.md#context)) that algorithms and callbacks use, from "
        "`evsys.protocols`.\nThe protocol of each kind of plugin is on [its page](../kinds/index.md).",
        [_code([source.outline(node)]) for node in nodes],
        [node.name for node in nodes],
    )


def _types_page() -> str:
    """A section for each module of `evsys.types`."""
    folder = Path(str(evsys.types.__file__)).parent
    sections, titles = [], []
    for path in sorted(folder.glob("[a-z]*.py")):
        source = Source(path.read_text(encoding="utf-8"))
        public = import_module(f"evsys.types.{path.stem}").__all__
        classes = [source.outline(node) for node in source.definitions if node.name in public]
        aliases = [source.lines_of(node) for node in source.tree.body if isinstance(node, ast.TypeAlias)]
        sections.append(_code([*(["\n".join(aliases)] if aliases else []), *classes]))
        titles.append(path.stem.capitalize())
    return _page(
        "Types",
        "The values that cross the contract, all importable from `evsys.types`.\n"
        "They are made by keyword; a new field always has a default.",
        sections,
        titles,
    )


def _page(title: str, intro: str, sections: Sequence[str], titles: Sequence[str] = ()) -> str:
    parts = [f"# {title}", _WRITTEN, intro]
    for number, section in enumerate(sections):
        parts += [f"## {titles[number]}", section] if titles else [section]
    return "\n\n".join(parts) + "\n"


def _code(definitions: Iterable[str]) -> str:
    return f"{NOT_RUN}\n```python\n" + "\n\n\n".join(definitions) + "\n```"


class Source:
    """The text of a module, from which definitions are taken as they are written, without the bodies of functions."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.tree = ast.parse(text)

    @property
    def definitions(self) -> list[ast.ClassDef | ast.FunctionDef]:
        """The classes and functions of the module."""
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]

    def lines_of(self, node: ast.stmt) -> str:
        """A statement as it is written."""
        return "\n".join(self.lines[node.lineno - 1 : node.end_lineno])

    def outline(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        """A definition with its docstring, its fields and the signatures of its public methods."""
        first = node.body[0]
        parts = ["\n".join(self.lines[node.lineno - 1 : first.lineno - 1])]
        if ast.get_docstring(node) is not None:
            parts[0] += f"\n{self.lines_of(first)}"
        if isinstance(node, ast.ClassDef):
            fields = [self.lines_of(each) for each in node.body if isinstance(each, ast.AnnAssign)]
            parts += ["\n".join(fields)] if fields else []
            parts += [self._method(each) for each in node.body if _is_public_method(each)]
        elif ast.get_docstring(node) is None:
            parts[0] += f"\n{' ' * first.col_offset}..."
        return "\n\n".join(parts)

    def _method(self, node: Any) -> str:
        decorators = [self.lines_of(one) for one in node.decorator_list]
        return "\n".join([*decorators, self.outline(node)])


def _is_public_method(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
