"""The process behind `math_equal`: compares mathematics, one JSON request and one JSON answer a line.

A request is `{expected}` or `{expected, text, decimals}`. The answer is `{refused}` where what is expected can't be
read, else `{equal}`. The library has deadlines of its own, which work in a main thread only; here the caller has
one.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

__all__ = ["answer_to", "serve"]

MEMORY_BYTES = 4 << 30
LONGEST_EXPRESSION = 200
"""An answer up to this length may be an expression without any marks around it."""


def serve() -> None:
    """Answer requests until standard input ends."""
    import_module("math_verify")
    _bound_memory()
    out, stray = sys.stdout.buffer, sys.stderr
    sys.stdout = stray  # nothing that the library prints may pass for an answer
    out.write(b"ready\n")
    out.flush()
    for line in sys.stdin.buffer:
        out.write(json.dumps(answer_to(json.loads(line))).encode() + b"\n")
        out.flush()


def _bound_memory() -> None:
    """Let algebra that explodes fail here rather than take the memory of the machine."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


def answer_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    expected = _parse_expected(request["expected"])
    if not expected:
        return {"refused": f"`expected` is {request['expected']!r}, which can't be read as mathematics"}
    if "text" not in request:
        return {"equal": None}
    said = _parse_answer(request["text"]) or _bare(request["text"])
    equal = import_module("math_verify").verify(
        expected, said, float_rounding=request["decimals"], timeout_seconds=None
    )
    return {"equal": bool(said) and bool(equal)}


@lru_cache(maxsize=256)
def _parse_expected(text: str) -> Sequence[Any]:
    """The expected expression: LaTeX with or without marks around it, or prose with an expression in it."""
    marked = "$" in text or "\\boxed" in text or "\\(" in text or "\\[" in text
    return _parse_answer(text) if marked else _parse_answer(f"${text}$") or _parse_answer(text)


def _bare(text: str) -> Sequence[Any]:
    text = text.strip()
    short = 0 < len(text) <= LONGEST_EXPRESSION and "\n" not in text and "$" not in text
    return _parse_answer(f"${text}$") if short else []


def _parse_answer(text: str) -> Sequence[Any]:
    """The readings of a text; empty where the library found an expression, but could make nothing of it but a text."""
    parsed: Sequence[Any] = import_module("math_verify").parse(text, parsing_timeout=None)
    return parsed if any(not isinstance(reading, str) for reading in parsed) else []


if __name__ == "__main__":
    serve()
