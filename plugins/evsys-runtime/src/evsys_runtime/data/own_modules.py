"""The modules that a piece of code reaches in its own package and alongside it, read as source text and never imported."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence, Set
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import attrs

__all__ = ["OwnModules", "imports_made", "names_read", "normalize_layout", "package_of"]

PROJECT_PACKAGE = "src"
"""The name under which a project's own code is imported."""


@attrs.frozen
class _Statement:
    """A statement at the top of a module: the names that it reads anywhere, and those that it acts with as it is executed."""

    text: str
    names: frozenset[str]
    imports: frozenset[tuple[str, str]]
    acts_with: frozenset[str] = frozenset()


@attrs.frozen
class _Module:
    """A module's top level: the statements that bind each name, and where imported names come from."""

    text: str
    statements: dict[str, list[_Statement]] = attrs.field(factory=dict)
    acting: list[_Statement] = attrs.field(factory=list)
    imported: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    starred: list[str] = attrs.field(factory=list)

    def all_imports(self) -> Iterator[tuple[str, str]]:
        """All imports of the module."""
        yield from self.imported.values()
        yield from ((source, _WHOLE) for source in self.starred)
        for statements in self.statements.values():
            for statement in statements:
                yield from statement.imports


_INSTALLED = frozenset({"site-packages", "dist-packages"})

_WHOLE = "*"
"""In place of a name: everything in a module, for `import package.module`, whose names are attributes."""


class OwnModules:
    """The modules of one top-level package and of what lies alongside it, parsed as they are reached and never imported."""

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
        homes: set[str] = set()
        acted: set[str] = set()
        while todo:
            home, name = todo.pop()
            if (home, name) in seen or not self._own(home):
                continue
            seen.add((home, name))
            if home not in homes:
                homes.add(home)
                for place, statement in self._acting(homes):
                    if statement.text not in acted:
                        acted.add(statement.text)
                        yield statement.text
                        todo += [(place, each) for each in statement.names]
                        todo += statement.imports
            if name != _WHOLE and self._is_module(home, name):
                home, name = f"{home}.{name}", _WHOLE
            parsed = self._parse_module(home)
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

    def _acting(self, homes: Set[str]) -> Iterator[tuple[str, _Statement]]:
        """Statements that act, as they are executed, with a name of one of these modules, and the module of each."""
        elsewhere = self._project_modules() if self._top == PROJECT_PACKAGE else ()
        for module in sorted({*homes, *elsewhere}):
            parsed = self._parse_module(module)
            for statement in parsed.acting:
                if any(self._home_of(parsed, module, name) in homes for name in statement.acts_with):
                    yield module, statement

    def _home_of(self, parsed: _Module, module: str, name: str) -> str | None:
        """The module that a name of a module comes from; None for builtins."""
        if name in parsed.imported:
            source, attribute = parsed.imported[name]
            inner = f"{source}.{attribute}"
            return (
                inner
                if attribute != _WHOLE and self._own(source) and self._is_module(source, attribute)
                else source
            )
        return module if name in parsed.statements else None

    def _project_modules(self) -> list[str]:
        if self._root is None:
            return []
        files = sorted((self._root / self._top).rglob("*.py"))
        names = [file.relative_to(self._root).with_suffix("").parts for file in files]
        return [".".join(parts[:-1] if parts[-1] == "__init__" else parts) for parts in names]

    def _own(self, module: str) -> bool:
        """True for modules of the package, and for those alongside it that aren't installed: the project's other files."""
        top = module.partition(".")[0]
        if top not in self._beside:
            place = None if self._root is None or top in sys.stdlib_module_names else _place_of(top)
            self._beside[top] = place is not None and place.parent == self._root
        return self._beside[top]

    def _is_module(self, home: str, name: str) -> bool:
        full = f"{home}.{name}"
        return full in sys.modules or (_is_package(home) and _spec_of(full) is not None)

    def _parse_module(self, name: str) -> _Module:
        if name not in self._modules:
            self._modules[name] = _parse(_text_of(name), package_of(name))
        return self._modules[name]


def _root_of(top: str) -> Path | None:
    """The folder that holds a top-level package; None for one that is installed, alongside which anything may lie."""
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
    """The spec of a module, found without executing any of the packages that hold it."""
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


def package_of(name: str | None) -> str:
    """The package that relative imports of a module start from."""
    given = getattr(sys.modules.get(name or ""), "__package__", None)
    if given or not name:
        return given or name or ""
    return name if _is_package(name) else name.rpartition(".")[0]


def _text_of(name: str) -> str:
    """The source of a module; empty where it has none."""
    module = sys.modules.get(name)
    if module is not None:
        try:
            return normalize_layout(inspect.getsource(module))
        except (OSError, TypeError, SyntaxError):
            return ""
    origin = getattr(_spec_of(name), "origin", None)
    if origin is None or not origin.endswith(".py"):
        return ""
    try:
        return normalize_layout(importlib.util.decode_source(Path(origin).read_bytes()))
    except (OSError, UnicodeError, SyntaxError):
        return ""


def _parse(text: str, package: str) -> _Module:
    lines = text.splitlines()
    module = _Module(text)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            source = _absolute_module(node, package)
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
                frozenset(names_read(inside)),
                frozenset(imports_made(inside, package)),
                frozenset(part.id for part in _acting_parts(node) if isinstance(part, ast.Name)),
            )
            if statement.acts_with:
                module.acting.append(statement)
            for name in _bound_names(node, inside):
                module.statements.setdefault(name, []).append(statement)
    return module


def _acting_parts(node: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a top-level statement that may change state as it is executed: not those that only bind a name to a value."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            parts: list[ast.AST] = list(node.decorator_list)
        case ast.ClassDef():
            parts = [*node.decorator_list, *node.bases, *node.keywords]
            yield from (part for inner in node.body for part in _acting_parts(inner))
        case ast.Assign(targets=targets, value=value) if all(isinstance(each, ast.Name) for each in targets):
            parts = _calls(value)
        case ast.AnnAssign(target=ast.Name(), value=value):
            parts = _calls(value) if value is not None else []
        case _:
            parts = [node]
    yield from (inner for part in parts for inner in ast.walk(part))


def _calls(value: ast.expr) -> list[ast.AST]:
    return [value] if any(isinstance(inner, ast.Call) for inner in ast.walk(value)) else []


def _bound_names(node: ast.stmt, inside: Sequence[ast.AST]) -> set[str]:
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


def _absolute_module(node: ast.ImportFrom, package: str) -> str:
    if not package:
        return node.module or ""
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def imports_made(inside: Iterable[ast.AST], package: str) -> Iterator[tuple[str, str]]:
    """All imports in here, as modules and names."""
    for node in inside:
        if isinstance(node, ast.ImportFrom):
            source = _absolute_module(node, package)
            yield from ((source, _WHOLE if alias.name == "*" else alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, _WHOLE) for alias in node.names)


def names_read(inside: Iterable[ast.AST]) -> set[str]:
    """Names read anywhere in here."""
    return {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def normalize_layout(source: str) -> str:
    """Source text without the layout at its edges.

    Raises:
        SyntaxError: it isn't complete on its own.
    """
    text = "\n".join(line.rstrip() for line in textwrap.dedent(source).splitlines())
    ast.parse(text)
    return text
