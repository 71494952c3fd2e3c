"""The process with the model's code in it. It is trusted with nothing: all it has is a pipe on which it is asked for values."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import IO, Any

from evsys_verifiers_std.code_sandbox.limits import limit
from evsys_verifiers_std.code_sandbox.plain import READY, as_line, decode, encode, from_line

__all__ = ["main"]

_FILE = "solution.py"


def main(given: int, writing: int, reading: int | None = None) -> None:
    """Take the code and the bounds from `given`, say on `writing` that this process is there, and start.

    What is asked on `reading` is answered; without it the code is run as a program.
    """
    with os.fdopen(given, "rb") as file:
        job = from_line(file.readline())
    told = os.fdopen(writing, "wb", buffering=0)
    limit(job["bounds"])
    told.write(READY)
    if reading is None:
        told.close()
        _run(job["code"])
    else:
        _answer(job["code"], os.fdopen(reading, "rb"), told)


def _run(code: str) -> None:
    """Run the code as a program, with the input and output that this process has."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = [_FILE]
    exec(compile(code, _FILE, "exec"), module.__dict__)  # noqa: S102 - what a sandbox is for


def _answer(code: str, asked: IO[bytes], told: IO[bytes]) -> None:
    """Load the code as a module, say which names it has, then answer one request after the other."""
    objects: list[Any] = []

    def remember(value: Any) -> int:
        objects.append(value)
        return len(objects) - 1

    def loaded() -> list[str]:
        module = sys.modules["solution"] = ModuleType("solution")
        objects.append(module)
        exec(compile(code, _FILE, "exec"), module.__dict__)  # noqa: S102 - what a sandbox is for
        return [name for name in vars(module) if not name.startswith("_")]

    told.write(as_line(_try_call(loaded, remember)))
    for line in asked:
        told.write(as_line(_try_call(partial(_serve, from_line(line), objects), remember)))


def _serve(request: Mapping[str, Any], objects: list[Any]) -> Any:
    target = objects[request["on"]]
    if "get" in request:
        return getattr(target, request["get"])
    args, kwargs = (decode(tree, objects.__getitem__) for tree in (request["args"], request["kwargs"]))
    value = target(*args, **kwargs)
    return _Called(value, args)


class _Called:
    """The return value of a call, and its arguments after it."""

    def __init__(self, value: Any, args: list[Any]) -> None:
        self.value = value
        self.args = args


def _try_call(make: Callable[[], Any], remember: Callable[[Any], int]) -> dict[str, Any]:
    try:
        made = make()
        if isinstance(made, _Called):
            return {"value": encode(made.value, remember), "args": encode(made.args, remember)}
        return {"value": encode(made, remember)}
    except Exception as exc:
        return {"raised": [type(exc).__name__, _message(exc)]}


def _message(exc: Exception) -> str:
    try:
        return str(exc)[:1000]
    except Exception as error:
        return f"no message: {type(error).__name__}"
