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
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import attrs

__all__ = ["source_hash"]

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_PYTHON = "python " + ".".join(map(str, sys.version_info[:2]))


def source_hash(obj: Any) -> str:
    """Hash of what a function or class does, as far as its source tells; instances count as their class.

    In it are its source, everything of its own top-level package, and of modules that lie beside that, that this source
    names or imports, directly or through others (functions, classes, constants, decorators), and the plain values that a
    closure or `functools.partial` holds. It doesn't matter whether an import was executed yet. Code of installed packages
    isn't in it: it is the business of the versions in the record.

    Where there is no source (a lambda, the interactive prompt, `exec`) it is the byte code with the Python version, so
    it changes with Python. What is compiled counts as its name and the version of its distribution.

    A class, and a function that closes over nothing, is read once a process, since what runs is what was imported.
    """
    if isinstance(obj, functools.partial) or hasattr(obj, "__wrapped__"):
        return _hash_of(obj)
    if inspect.isroutine(obj):
        once = isinstance(obj, FunctionType) and not obj.__closure__
        return _read_once(obj) if once else _hash_of(obj)
    doing: Any = obj if isinstance(obj, type) else type(obj)
    return _read_once(doing)


@functools.lru_cache(maxsize=256)
def _read_once(obj: type | FunctionType) -> str:
    return _hash_of(obj)


def _hash_of(obj: Any) -> str:
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
    imports: frozenset[tuple[str, str]] = frozenset()
    if text is None:
        yield from _without_source(obj)
        names = {name for code in _codes(obj) for name in _code_names(code)}
    else:
        yield text
        inside = list(ast.walk(ast.parse(text)))
        names, imports = _names(inside), frozenset(_imports(inside, _package_of(obj.__module__)))
    if isinstance(obj, FunctionType):
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
            yield from _held(name, cell, obj)
    yield from _OwnModules(obj.__module__).reached_from(obj.__module__, names, imports)


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
        return _laid_out(inspect.getsource(obj))
    except (OSError, TypeError, SyntaxError):
        return None


def _laid_out(source: str) -> str:
    """Source text without the layout at its edges.

    Raises:
        SyntaxError: it can't stand alone.
    """
    text = "\n".join(line.rstrip() for line in textwrap.dedent(source).splitlines())
    ast.parse(text)
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
    imports: frozenset[tuple[str, str]]


@attrs.frozen
class _Module:
    """A module's top level: the statements that bind each name, and where imported names come from."""

    text: str
    statements: dict[str, list[_Statement]] = attrs.field(factory=dict)
    imported: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    starred: list[str] = attrs.field(factory=list)

    def all_imports(self) -> Iterator[tuple[str, str]]:
        """What the module imports anywhere."""
        yield from self.imported.values()
        yield from ((source, _WHOLE) for source in self.starred)
        for statements in self.statements.values():
            for statement in statements:
                yield from statement.imports


_INSTALLED = frozenset({"site-packages", "dist-packages"})

_WHOLE = "*"
"""In place of a name: everything in a module, for `import package.module`, whose names are attributes."""


class _OwnModules:
    """The modules of one top-level package and of what lies beside it, parsed as they are reached and never imported."""

    def __init__(self, module: str | None) -> None:
        self._top = (module or "").partition(".")[0]
        self._modules: dict[str, _Module] = {}
        self._beside: dict[str, bool] = {self._top: True}
        self._root = _root_of(self._top)

    def reached_from(
        self, module: str | None, names: Iterable[str], imports: Iterable[tuple[str, str]]
    ) -> Iterator[str]:
        """The texts of all statements that code of `module` reaches that reads these names and makes these imports."""
        todo = [*((module or "", name) for name in names), *imports]
        seen: set[tuple[str, str]] = set()
        while todo:
            home, name = todo.pop()
            if (home, name) in seen or not self._own(home):
                continue
            seen.add((home, name))
            if name != _WHOLE and self._is_module(home, name):
                home, name = f"{home}.{name}", _WHOLE
            parsed = self._parsed(home)
            if name == _WHOLE:
                yield parsed.text
                todo += parsed.all_imports()
            if name in parsed.imported:
                todo.append(parsed.imported[name])
            elif name not in parsed.statements:
                todo += [(source, name) for source in parsed.starred]
            for statement in parsed.statements.get(name, ()):
                yield statement.text
                todo += [(home, each) for each in statement.names]
                todo += statement.imports

    def _own(self, module: str) -> bool:
        """True for modules of the package, and for those beside it that aren't installed: the project's other files."""
        top = module.partition(".")[0]
        if top not in self._beside:
            place = None if self._root is None or top in sys.stdlib_module_names else _place_of(top)
            self._beside[top] = place is not None and place.parent == self._root
        return self._beside[top]

    def _is_module(self, home: str, name: str) -> bool:
        full = f"{home}.{name}"
        return full in sys.modules or (_is_package(home) and _spec_of(full) is not None)

    def _parsed(self, name: str) -> _Module:
        if name not in self._modules:
            self._modules[name] = _parse(_text_of(name), _package_of(name))
        return self._modules[name]


def _root_of(top: str) -> Path | None:
    """The folder that holds a top-level package; None for one that is installed, beside which anything may lie."""
    place = _place_of(top)
    if place is None or _INSTALLED.intersection(place.parts) or top in sys.stdlib_module_names:
        return None
    return place.parent


def _place_of(top: str) -> Path | None:
    """The folder of a top-level package, or the file of a module."""
    module = sys.modules.get(top)
    spec = getattr(module, "__spec__", None) or _spec_of(top)
    folders = getattr(module, "__path__", None) or getattr(spec, "submodule_search_locations", None)
    file = getattr(module, "__file__", None) or getattr(spec, "origin", None)
    found = next(iter(folders), None) if folders else file
    return Path(found) if found else None


def _spec_of(name: str) -> ModuleSpec | None:
    """Where a module is, found without executing any of the packages that hold it."""
    loaded = sys.modules.get(name)
    if loaded is not None or not name:
        return getattr(loaded, "__spec__", None)
    parent, _, _ = name.rpartition(".")
    if not parent:
        return PathFinder.find_spec(name)
    folders = getattr(sys.modules.get(parent), "__path__", None)
    if folders is None:
        folders = getattr(_spec_of(parent), "submodule_search_locations", None)
    return PathFinder.find_spec(name, list(folders)) if folders else None


def _is_package(name: str) -> bool:
    module = sys.modules.get(name)
    if module is not None:
        return hasattr(module, "__path__")
    return getattr(_spec_of(name), "submodule_search_locations", None) is not None


def _package_of(name: str | None) -> str:
    """What relative imports of a module start from."""
    given = getattr(sys.modules.get(name or ""), "__package__", None)
    if given or not name:
        return given or name or ""
    return name if _is_package(name) else name.rpartition(".")[0]


def _text_of(name: str) -> str:
    """The source of a module; empty where it has none."""
    module = sys.modules.get(name)
    if module is not None:
        return _source(module) or ""
    origin = getattr(_spec_of(name), "origin", None)
    if origin is None or not origin.endswith(".py"):
        return ""
    try:
        return _laid_out(importlib.util.decode_source(Path(origin).read_bytes()))
    except (OSError, UnicodeError, SyntaxError):
        return ""


def _parse(text: str, package: str) -> _Module:
    lines = text.splitlines()
    module = _Module(text)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            source = _imported_from(node, package)
            for alias in node.names:
                if alias.name == "*":
                    module.starred.append(source)
                else:
                    module.imported[alias.asname or alias.name] = (source, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                module.imported[alias.asname or alias.name.partition(".")[0]] = (alias.name, _WHOLE)
        elif not _for_types_only(node):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            inside = list(ast.walk(node))
            statement = _Statement(
                "\n".join(lines[first - 1 : node.end_lineno]),
                frozenset(_names(inside)),
                frozenset(_imports(inside, package)),
            )
            for name in _bound(node, inside):
                module.statements.setdefault(name, []).append(statement)
    return module


def _bound(node: ast.stmt, inside: Sequence[ast.AST]) -> set[str]:
    """Names that a top-level statement binds."""
    definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    if isinstance(node, definition):
        return {node.name}
    bound = {
        inner.name if isinstance(inner, definition) else inner.id
        for inner in inside
        if isinstance(inner, definition) or (isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store))
    }
    imports = [inner for inner in inside if isinstance(inner, ast.Import | ast.ImportFrom)]
    return bound | {(a.asname or a.name.partition(".")[0]) for each in imports for a in each.names}


def _for_types_only(node: ast.stmt) -> bool:
    """True for `if TYPE_CHECKING:`, which no code reaches that runs."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    return isinstance(node.test, ast.Name | ast.Attribute) and "TYPE_CHECKING" in ast.unparse(node.test)


def _imported_from(node: ast.ImportFrom, package: str) -> str:
    if not package:
        return node.module or ""
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def _imports(inside: Iterable[ast.AST], package: str) -> Iterator[tuple[str, str]]:
    """What is imported anywhere in here, as modules and names."""
    for node in inside:
        if isinstance(node, ast.ImportFrom):
            source = _imported_from(node, package)
            yield from ((source, _WHOLE if alias.name == "*" else alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, _WHOLE) for alias in node.names)


def _names(inside: Iterable[ast.AST]) -> set[str]:
    """Names that are read anywhere in here."""
    return {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
