"""The tests of a task, read strictly: one that can't fail, or can't run, is not a test."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

__all__ = ["Given", "given_tests"]

_KEYS = ("tests", "entry_point", "setup", "solution")
_CALL_KEYS = frozenset({"args", "kwargs", "returns"})


class Settings(Protocol):
    """Sources of tests in addition to the task."""

    @property
    def tests(self) -> Any:
        """Tests that win over those of the task."""

    @property
    def entry_point(self) -> str | None:
        """The name that they test."""

    @property
    def setup(self) -> str:
        """The code that runs before them."""


@attrs.frozen(kw_only=True)
class Given:
    """Tests, the function that they are about, what runs before them, and code that passes them where the task has some."""

    tests: tuple[Any, ...]
    entry_point: str | None
    setup: str
    solution: str | None = None


def given_tests(settings: Settings, expected: Any) -> Given:
    """The tests of the params, else those of the task, which may be an object with the keys of `_KEYS`.

    Raises:
        ValueError: there are none, or one can't be run.
    """
    own = expected if isinstance(expected, Mapping) and "tests" in expected else {}
    if unknown := sorted(set(own) - set(_KEYS)):
        raise ValueError(f"`expected` has the unknown key {unknown[0]!r}; it may have {', '.join(_KEYS)}")
    tests = settings.tests if settings.tests is not None else own.get("tests", None if own else expected)
    entry_point = settings.entry_point if settings.entry_point is not None else own.get("entry_point")
    setup = settings.setup or own.get("setup", "")
    listed = list(tests) if isinstance(tests, list | tuple) else [] if tests is None else [tests]
    if not listed:
        raise ValueError("there are no tests: give them as `params.tests`, or as the task's `expected`")
    _check_entry_point(entry_point)
    _parse_code("setup", setup)
    solution = own.get("solution")
    if solution is not None:
        _parse_code("solution", solution)
    for number, test in enumerate(listed, start=1):
        _check(f"test {number}", test, entry_point)
    imports = _imports([test for test in listed if isinstance(test, str)], setup)
    return Given(
        tests=tuple(listed),
        entry_point=entry_point,
        setup=f"{setup}\n{imports}" if imports else setup,
        solution=solution,
    )


_LIBRARIES = frozenset({"np", "numpy", "pd", "pandas", "pytest", "scipy", "sympy", "torch"})
"""Modules that tests often use without an import, and that aren't Python's own."""


def _imports(tests: Sequence[str], setup: str) -> str:
    """Imports of the modules of Python that tests use without one, as `math` in `math.isclose(...)`.

    A name that tests don't define is the program's. A module must not be: a program with a class `math` of its own would
    judge itself.

    Raises:
        ValueError: a test uses a module that isn't Python's own, and nothing imports it.
    """
    bound = _bound(ast.parse(setup))
    found: set[str] = set()
    for number, test in enumerate(tests, start=1):
        tree = ast.parse(test)
        bases = {
            node.value.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        unbound = bases - bound - _bound(tree)
        if foreign := sorted(unbound & _LIBRARIES):
            raise ValueError(f"test {number} uses {foreign[0]} without importing it; import it in `setup`")
        found |= unbound & sys.stdlib_module_names
    return "".join(f"import {name}\n" for name in sorted(found))


def _bound(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def _check_entry_point(name: Any) -> None:
    parts = name.split(".") if isinstance(name, str) else []
    if name is not None and not (0 < len(parts) <= 2 and all(part.isidentifier() for part in parts)):
        raise ValueError(f"entry_point {name!r} is not a name such as solve or Solution.solve")


def _check(where: str, test: Any, entry_point: str | None) -> None:
    if isinstance(test, str):
        _check_code(where, _parse_code(where, test), entry_point)
    elif not isinstance(test, Mapping):
        raise ValueError(f"{where} is a {type(test).__name__}, not Python code or an object")  # noqa: TRY004 - as all others
    elif set(test) == {"input", "output"}:
        if not all(isinstance(text, str) for text in test.values()):
            raise ValueError(f"{where}: input and output are texts")
    elif "returns" in test and set(test) <= _CALL_KEYS:
        _check_call(where, test, entry_point)
    else:
        raise ValueError(
            f"{where} has {', '.join(map(str, test))}; give input and output, or args, kwargs and returns"
        )


_DEFINING = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _check_code(where: str, code: ast.Module, entry_point: str | None) -> None:
    """Refuse code that does nothing, or only defines what no one calls."""
    doing = [
        part
        for part in code.body
        if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
    ]
    if not doing:
        raise ValueError(f"{where} is empty, so every program passes it")
    for part in doing:
        if isinstance(part, ast.AsyncFunctionDef) and part.name.startswith("test_"):
            raise ValueError(f"{where}: {part.name} is async, but is never awaited")
    if all(isinstance(part, _DEFINING) and not _is_test(part, entry_point) for part in doing):
        raise ValueError(
            f"{where} only defines things, so every program passes it; call them, call a function test_..., or name the "
            "entry_point for check(candidate)"
        )


def _is_test(part: ast.stmt, entry_point: str | None) -> bool:
    if isinstance(part, ast.ClassDef):
        return any(ast.unparse(base).endswith("TestCase") for base in part.bases)
    if not isinstance(part, ast.FunctionDef):
        return False
    return part.name.startswith("test_") or (part.name == "check" and entry_point is not None)


def _check_call(where: str, test: Mapping[str, Any], entry_point: str | None) -> None:
    if entry_point is None:
        raise ValueError(f"{where} calls a function, and there is no entry_point that names it")
    if not isinstance(test.get("args", []), list | tuple) or not isinstance(test.get("kwargs", {}), Mapping):
        raise ValueError(f"{where}: args is a list, kwargs an object")  # noqa: TRY004 - as all others
    try:
        json.dumps(dict(test))
    except (TypeError, ValueError, RecursionError) as exc:
        raise ValueError(f"{where} can't be written as JSON: {exc}") from exc


def _parse_code(where: str, code: Any) -> ast.Module:
    if not isinstance(code, str):
        raise ValueError(f"{where} is a {type(code).__name__}, not Python code")  # noqa: TRY004 - as all others
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise ValueError(f"{where} is not valid Python: {exc}") from exc
