"""Secrets in text that a record would keep as it is: found line by line, so that a message can point at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evsys.errors import Problem
from evsys_record.secrets import Redactor

__all__ = ["leak", "leaks_in"]

OPTION = "--set "
"""How the names of secrets begin that came from the command line; other names are variables of the environment."""


def leaks_in(text: str, redactor: Redactor) -> Iterator[tuple[str, int, int]]:
    """Name, line and column (from 1) of each secret in a line of `text`."""
    for number, line in enumerate(text.split("\n"), 1):
        for name, index in redactor.leaked(line).items():
            yield name, number, index + 1


def leak(name: str, *, path: str = "", **place: Any) -> Problem:
    """The problem with a secret at `path`; `place` is what else a `Problem` knows of places."""
    if name.startswith(OPTION):
        told, hint = f"the value given by {name}", "leave it out here"
    else:
        told, hint = f"the value of the environment variable {name}", f"write ${{{name}}} instead"
    return Problem(
        path=path, message=f"{told} occurs here, and the record keeps this text", hint=hint, **place
    )
