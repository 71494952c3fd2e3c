"""The source behind a function or class: its own, and that of what it names inside its package.

Everything is read from source text, never from values at run time: a module's memo or registry may change while a
run goes on, and its hash must not.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

import attrs

__all__ = ["source_hash"]

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_PYTHON = "python " + ".".join(map(str, sys.version_info[:2]))


def source_hash(obj: Any) -> str:
    """Hash of what a function or class does, as far as its source tells; instances count as their class.

    In it are its source, everything of its own top-level package that this source names, directly or through others
    (functions, classes, constants, decorators), and the plain values that a closure or `functools.partial` holds.
    Code of other packages isn't: it is the business of the versions in the record.

    Where there is no source (a lambda, the interactive prompt, `exec`) it is the byte code with the Python version, so
    it changes with Python. What is compiled counts as its name and the version of its distribution.
    """
    text = json.dumps(sorted(set(_source_parts(obj))), separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def _source_parts(obj: Any) -> Iterator[str]:
    """Texts that together say what `obj` does; the same text may come twice."""
    while isinstance(obj, functools.partial):
        yield f"partial {_plain(obj.args)} {_plain(obj.keywords)}"
        obj = obj.func
    if inspect.ismethod(obj):
        yield f"method {obj.__name__}"
        obj = obj.__self__
    obj = inspect.unwrap(obj) if callable(obj) else obj
    if not isinstance(obj, type | FunctionType) and not inspect.isbuiltin(obj):
        obj = type(obj)
    text = None if getattr(obj, "__name__", "") == "<lambda>" else _source(obj)
    if text is None:
        yield from _without_source(obj)
        names = {name for code in _codes(obj) for name in _code_names(code)}
    else:
        yield text
        names = _names(ast.parse(text))
    if isinstance(obj, FunctionType):
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
            yield from _held(name, cell, obj)
    yield from _Package(obj.__module__).reached_from(obj.__module__, names)


def _held(name: str, cell: Any, owner: FunctionType) -> Iterator[str]:
    try:
        value = cell.cell_contents
    except ValueError:  # not filled yet: a function that names itself
        return
    if isinstance(value, type | FunctionType) and value is not owner:
        yield from _source_parts(value)
    else:
        yield f"{name} = {_plain(value)}"


def _plain(value: Any) -> str:
    """The plain values in here; of others the type, since their `repr` may hold an address."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_plain, value)))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_plain(key)}: {_plain(item)}' for key, item in value.items())}}}"
    return type(value).__qualname__


# --- one object -------------------------------------------------------------------------------------------------


def _source(obj: Any) -> str | None:
    """Source text without the layout at its edges; None where there is none, or it can't stand alone."""
    try:
        lines = textwrap.dedent(inspect.getsource(obj)).splitlines()
        text = "\n".join(line.rstrip() for line in lines)
        ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        return None
    return text


def _without_source(obj: Any) -> Iterator[str]:
    codes = list(_codes(obj))
    if codes:
        yield from (f"{_PYTHON} {_code_text(code)}" for code in codes)
    else:
        yield f"{obj.__module__}.{obj.__qualname__} {_version(obj.__module__)}"


def _codes(obj: Any) -> Iterator[CodeType]:
    """The code of a function, or of all functions of a class."""
    if isinstance(obj, FunctionType):
        yield obj.__code__
    elif isinstance(obj, type):
        for value in vars(obj).values():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, FunctionType):
                yield function.__code__


def _code_text(code: CodeType) -> str:
    constants = [_code_text(item) if isinstance(item, CodeType) else _plain(item) for item in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames} {code.co_freevars}"


def _code_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_names(constant)


def _version(module: str | None) -> str:
    top = (module or "builtins").partition(".")[0]
    if top in sys.stdlib_module_names:
        return _PYTHON
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(top), "__version__", "unknown"))


# --- what it names ----------------------------------------------------------------------------------------------


@attrs.frozen
class _Statement:
    text: str
    names: frozenset[str]


@attrs.frozen
class _Module:
    """A module's top level: the statements that bind each name, and where imported names come from."""

    text: str
    statements: dict[str, list[_Statement]] = attrs.field(factory=dict)
    imported: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    starred: list[str] = attrs.field(factory=list)


_WHOLE = "*"
"""In place of a name: everything in a module, for `import package.module`, whose names are attributes."""


class _Package:
    """The modules of one top-level package, parsed as they are reached."""

    def __init__(self, module: str | None) -> None:
        self._top = (module or "").partition(".")[0]
        self._modules: dict[str, _Module] = {}

    def reached_from(self, module: str | None, names: Iterable[str]) -> Iterator[str]:
        todo = [(module or "", name) for name in names]
        seen: set[tuple[str, str]] = set()
        while todo:
            home, name = todo.pop()
            if (home, name) in seen or home.partition(".")[0] != self._top:
                continue
            seen.add((home, name))
            if f"{home}.{name}" in sys.modules:
                home, name = f"{home}.{name}", _WHOLE
            parsed = self._parsed(home)
            if name == _WHOLE:
                yield parsed.text
                todo += [(home, each) for each in parsed.imported]
            if name in parsed.imported:
                todo.append(parsed.imported[name])
            elif name not in parsed.statements:
                todo += [(source, name) for source in parsed.starred]
            for statement in parsed.statements.get(name, ()):
                yield statement.text
                todo += [(home, each) for each in statement.names]

    def _parsed(self, name: str) -> _Module:
        if name not in self._modules:
            module = sys.modules.get(name)
            text = _source(module) if module is not None else None
            self._modules[name] = _parse(text or "", getattr(module, "__package__", None) or name)
        return self._modules[name]


def _parse(text: str, package: str) -> _Module:
    lines = text.splitlines()
    module = _Module(text)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                if alias.name == "*":
                    module.starred.append(source)
                else:
                    module.imported[alias.asname or alias.name] = (source, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                module.imported[alias.asname or alias.name.partition(".")[0]] = (alias.name, _WHOLE)
        else:
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            statement = _Statement("\n".join(lines[first - 1 : node.end_lineno]), frozenset(_names(node)))
            for name in _bound(node):
                module.statements.setdefault(name, []).append(statement)
    return module


def _bound(node: ast.stmt) -> set[str]:
    """Names that a top-level statement binds."""
    definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    if isinstance(node, definition):
        return {node.name}
    return {
        inner.name if isinstance(inner, definition) else inner.id
        for inner in ast.walk(node)
        if isinstance(inner, definition) or (isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store))
    }


def _names(tree: ast.AST) -> set[str]:
    """Names that are read anywhere in here."""
    return {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
