"""The process with the tests in it. It reports through a pipe that the model's code doesn't have."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Mapping
from typing import IO, Any

from evsys_verifiers_std.code_sandbox.limits import limit
from evsys_verifiers_std.code_sandbox.plain import READY, as_line, from_line
from evsys_verifiers_std.code_sandbox.remote import Remote, Solution, SolutionEndedError

__all__ = ["main"]

type Part = tuple[str, Callable[[], None]]


def main(given: int, results: int, asking: int, hearing: int) -> None:
    """Take the job from `given`, test what answers on `asking` and `hearing`, and report each test on `results`."""
    with os.fdopen(given, "rb") as file:
        job = from_line(file.readline())
    limit(job["bounds"])
    told, heard = os.fdopen(results, "wb", buffering=0), os.fdopen(hearing, "rb")
    solution = Solution(os.fdopen(asking, "wb"), heard)
    if heard.readline(len(READY)) != READY:
        return
    told.write(as_line({"ready": True}))
    try:
        names = _prepare(job)
    except Exception as exc:
        told.write(as_line({"unusable": _error_text(exc)}))
        return
    try:
        known = solution.hear()
        offered = _visible_names(job["entry_point"], known if isinstance(known, list) else [], solution)
    except Exception as exc:
        told.write(as_line({"stopped": _error_text(exc)}))
        return
    for index, test in enumerate(job["tests"]):
        _test(index, test, {**offered, **names}, job["entry_point"], told)
    told.write(as_line({"done": True}))


def _prepare(job: Mapping[str, Any]) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "tests"}
    exec(compile(job["setup"], "setup.py", "exec"), names)  # noqa: S102 - the benchmark's own code
    return names


def _visible_names(entry_point: str | None, known: list[Any], solution: Solution) -> dict[str, Any]:
    """The names of the model's code that tests may use: the entry point alone, or all but those that shadow
    Python's own.
    """
    module = Remote(solution, 0)
    if entry_point is None:
        return {name: getattr(module, str(name)) for name in known if not hasattr(builtins, str(name))}
    owner, dot, method = entry_point.rpartition(".")
    made = getattr(getattr(module, owner)(), method) if dot else getattr(module, method)
    return {method: made, "candidate": made}


def _test(index: int, test: Any, names: dict[str, Any], entry_point: str | None, told: IO[bytes]) -> None:
    """Announce the parts of a test, run them, and show how each ended."""

    def tell(part: int, error: str | None) -> None:
        told.write(as_line({"test": index, "part": part, "error": error}))

    told.write(as_line({"test": index, "parts": [""]}))
    try:
        parts = _parts(test, names, entry_point)
    except Exception as exc:
        tell(0, _error_text(exc))
        return
    if not parts:
        tell(0, None)
        return
    told.write(as_line({"test": index, "parts": [name for name, _ in parts]}))
    for place, (_, run) in enumerate(parts):
        try:
            run()
        except Exception as exc:
            tell(place, _error_text(exc))
        else:
            tell(place, None)


def _parts(test: Any, names: dict[str, Any], entry_point: str | None) -> list[Part]:
    """The callables to run of a test; None if running its text was all of it."""
    if not isinstance(test, str):
        return [("", lambda: _compare(test, names["candidate"]))]
    exec(compile(test, "tests.py", "exec"), names)  # noqa: S102 - the benchmark's own code
    if entry_point is not None and callable(check := names.get("check")):
        return [("check", lambda: check(names["candidate"]))]
    functions = [
        (name, value) for name, value in names.items() if name.startswith("test_") and _is_own(value)
    ]
    return functions + [case for value in list(names.values()) for case in _cases(value)]


def _is_own(value: Any) -> bool:
    return callable(value) and not isinstance(value, Remote | type)


def _cases(value: Any) -> list[Part]:
    """The tests of a `unittest.TestCase`."""
    if not isinstance(value, type) or value.__module__ != "tests":
        return []
    import unittest  # here, since few tests need it

    if not issubclass(value, unittest.TestCase):
        return []
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(value)
    return [(case.id(), case.debug) for case in suite if isinstance(case, unittest.TestCase)]


def _compare(test: Mapping[str, Any], candidate: Any) -> None:
    value = _as_json(candidate(*test.get("args", ()), **test.get("kwargs", {})))
    if value != test["returns"]:
        raise AssertionError(f"gave {repr(value)[:200]}")


def _as_json(value: Any) -> Any:
    """A value as JSON would have it, since that is what the expected one was written in."""
    if isinstance(value, tuple | list):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key): _as_json(item) for key, item in value.items()}
    return value


def _error_text(exc: BaseException) -> str:
    if isinstance(exc, SolutionEndedError):
        return str(exc)
    return f"{type(exc).__name__}: {exc}"[:300]
