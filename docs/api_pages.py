"""The reference pages of `evsys.types`, the protocols of a run, and the hooks: their source without bodies."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

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
    return _page(
        "Hook arguments",
        "[Hooks](../hooks.md) has the rules. All arguments are passed by keyword; implementations take any of them.",
        [_code(_outline(node) for node in _definitions(hookspecs) if node.name.startswith("evsys_"))],
    )


def _protocols_page(elsewhere: set[str]) -> str:
    nodes = [
        node
        for node in _definitions(protocols)
        if node.name in protocols.__all__ and node.name not in elsewhere
    ]
    return _page(
        "Protocols of a run",
        "The members of a `RunContext` (see [types](types.md#context)) that algorithms and callbacks use, from "
        "`evsys.protocols`.\nThe protocol of each kind of plugin is on [its page](../kinds/index.md).",
        [_code([_outline(node)]) for node in nodes],
        [node.name for node in nodes],
    )


def _types_page() -> str:
    """A section for each module of `evsys.types`."""
    folder = Path(str(evsys.types.__file__)).parent
    sections, titles = [], []
    for path in sorted(folder.glob("[a-z]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        public = _public_names(tree)
        nodes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in public]
        aliases = [ast.unparse(node) for node in tree.body if isinstance(node, ast.TypeAlias)]
        sections.append(_code([*aliases, *map(_outline, nodes)]))
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


def _definitions(module: ModuleType) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node


def _public_names(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def _outline(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: str = "") -> str:
    """A definition with its docstring, its fields and the signatures of its public methods."""
    head = ast.unparse(
        type(node)(**{**vars(node), "body": [ast.Expr(ast.Constant(...))], "decorator_list": []})
    )
    head = head.removesuffix("...").rstrip()
    docstring = ast.get_docstring(node)
    lines = [] if docstring is None else [_quoted(docstring, f"{indent}    ")]
    if isinstance(node, ast.ClassDef):
        lines += [f"{indent}    {ast.unparse(each)}" for each in node.body if isinstance(each, ast.AnnAssign)]
        for each in node.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
                decorators = "".join(f"{indent}    @{ast.unparse(one)}\n" for one in each.decorator_list)
                lines.append(f"\n{decorators}{_outline(each, f'{indent}    ')}")
    elif docstring is None:
        lines = [f"{indent}    ..."]
    return "\n".join([f"{indent}{head}", *lines]) if lines else f"{indent}{head} ..."


def _quoted(docstring: str, indent: str) -> str:
    """A docstring in its quotes, indented as in the source."""
    text = docstring.replace("\n", f"\n{indent}").replace(f"\n{indent}\n", "\n\n")
    end = f"\n{indent}" if "\n" in docstring else ""
    return f'{indent}"""{text}{end}"""'
