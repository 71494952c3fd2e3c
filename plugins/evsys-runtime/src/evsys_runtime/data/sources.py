"""The source behind a function or class: its own, and that of what it names inside its package.

Everything is read from source text, never from values at run time: a module's memo or registry may change while a
run continues, and its hash must not.
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
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from evsys_runtime.data.own_modules import OwnModules, imports_made, names_read, normalize_layout, package_of

__all__ = ["source_hash"]

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_PYTHON = "python " + ".".join(map(str, sys.version_info[:2]))


def source_hash(obj: Any) -> str:
    """Hash of the behaviour of a function or class according to its source; instances count as their class.

    In it are its source, everything of its own top-level package, and of modules that lie alongside that, that this source
    names or imports, directly or through others (functions, classes, constants, decorators), and the plain values that a
    closure or `functools.partial` holds. So are all statements of these modules that act as the module is imported
    (`TABLE["k"] = 1`, `RULES.append(f)`, `@rule(0.5)`), and in a project those of its other modules that act on something of
    them: any of these may change what the source reads. It doesn't matter whether an import was executed yet. Code of installed
    packages isn't in it: it is the business of the versions in the record.

    If there is no source (a lambda, the interactive prompt, `exec`) it is the byte code with the Python version, so
    it changes with Python. What is compiled counts as its name and the version of its distribution.

    A class, and a function that closes over nothing, is read once a process, since the imported code is the one
    that runs.
    """
    if isinstance(obj, functools.partial) or hasattr(obj, "__wrapped__"):
        return _hash_of(obj)
    if inspect.isroutine(obj):
        once = isinstance(obj, FunctionType) and not obj.__closure__
        return _read_source(obj) if once else _hash_of(obj)
    doing: Any = obj if isinstance(obj, type) else type(obj)
    return _read_source(doing)


@functools.lru_cache(maxsize=256)
def _read_source(obj: type | FunctionType) -> str:
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
        yield from _missing_sources(obj)
        names = {name for code in _codes(obj) for name in _code_names(code)}
    else:
        yield text
        inside = list(ast.walk(ast.parse(text)))
        names, imports = names_read(inside), frozenset(imports_made(inside, package_of(obj.__module__)))
    if isinstance(obj, FunctionType):
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
            yield from _held_sources(name, cell, obj)
    yield from OwnModules(obj.__module__).reached_from(obj.__module__, names, imports)


def _held_sources(name: str, cell: Any, owner: FunctionType) -> Iterator[str]:
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
    """Source text without the layout at its edges; None if there is none, or it isn't complete on its own."""
    try:
        return normalize_layout(inspect.getsource(obj))
    except (OSError, TypeError, SyntaxError):
        return None


def _missing_sources(obj: Any) -> Iterator[str]:
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
