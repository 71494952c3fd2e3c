"""Regular expressions with a deadline: Python's `re` can't be interrupted, so it matches in a process of its own.

A pattern without repetition and with few groups needs none: what it takes grows with the text and no faster.
"""

from __future__ import annotations

import re
from functools import lru_cache

from evsys_runtime.data.helper_process import HelperProcess

__all__ = ["compile_pattern", "search"]

_SERVE = """
import json, re, sys
from functools import lru_cache
compiled = lru_cache(maxsize=256)(re.compile)
out = sys.stdout.buffer
out.write(b"ready\\n")
out.flush()
for line in sys.stdin.buffer:
    pattern, flags, text, full = json.loads(line)
    expression = compiled(pattern, flags)
    found = expression.fullmatch(text) if full else expression.search(text)
    out.write(b"true\\n" if found else b"false\\n")
    out.flush()
"""

_matcher = HelperProcess(["-I", "-S", "-c", _SERVE], "matches patterns")

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?|.", re.DOTALL)
"""A piece of a pattern: an escape, a set of characters, the beginning of a group with options, or one character."""


_FEW_GROUPS = 3


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The compiled pattern.

    Raises:
        ValueError: it is not a regular expression; says where.
    """
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as exc:
        raise ValueError(f"{pattern!r} is not a regular expression: {exc}") from exc


def search(pattern: str, flags: int, text: str, *, full: bool, timeout_seconds: float) -> bool:
    """True when the pattern matches somewhere in `text`, or all of it with `full`.

    Raises:
        ValueError: it is not a regular expression.
        TimeoutError: matching took longer than `timeout_seconds`.
    """
    expression = compile_pattern(pattern, flags)
    if not _multiplies(pattern):
        return (expression.fullmatch(text) if full else expression.search(text)) is not None
    found: bool = _matcher.ask([pattern, flags, text, full], timeout_seconds, f"the pattern {pattern!r}")
    return found


@lru_cache(maxsize=256)
def _multiplies(pattern: str) -> bool:
    """True where backtracking has something to multiply: repetition, or many groups of which each may match in several
    ways.
    """
    tokens = _TOKEN.findall(pattern)
    groups = sum(token in {"(", "(?"} for token in tokens)
    return any(token in {"*", "+", "?", "{"} for token in tokens) or ("|" in tokens and groups > _FEW_GROUPS)
