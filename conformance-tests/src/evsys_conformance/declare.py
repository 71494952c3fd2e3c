"""`@check`: what a check says about itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["OF_ALL", "Check", "check", "check_of", "checks_of", "first_paragraph", "is_behaviour", "words_of"]

_ATTRIBUTE = "__evsys_check__"
OF_ALL = frozenset({"evsys_conformance.checks.entry", "evsys_conformance.checks.plugin"})
"""The modules of the checks that all kinds have."""


@dataclass(frozen=True)
class Check:
    """`since_protocol`: the first protocol version whose plugins are measured by this check.

    `needs`: a capability; plugins that don't declare it are skipped. `before_loading`: the check looks at the entry
    itself, so it runs for a plugin that can't be loaded too. `calls`: the check calls the plugin's methods, so it is
    skipped for a plugin that says it needs a service, unless there is one.
    """

    since_protocol: int = 1
    needs: str | None = None
    before_loading: bool = False
    calls: bool = True


def check[F: Callable[..., Any]](
    *, since_protocol: int = 1, needs: str | None = None, before_loading: bool = False, calls: bool = True
) -> Callable[[F], F]:
    """Make a test method a check of the suite; see `Check`. The first paragraph of its docstring is its contract."""

    def mark(function: F) -> F:
        setattr(function, _ATTRIBUTE, Check(since_protocol, needs, before_loading, calls))
        return function

    return mark


def check_of(function: Any) -> Check | None:
    """The description of a test method, or None if it is not a check."""
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, Check) else None


def checks_of(cls: type) -> Iterator[tuple[str, Any]]:
    """(name, function) of every check that a conformance class has, inherited ones included, nearest class first."""
    seen: set[str] = set()
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if name not in seen and check_of(value) is not None:
                seen.add(name)
                yield name, value


def is_behaviour(cls: type, name: str) -> bool:
    """True for a check of a kind's own that calls the plugin's methods; what all plugins keep is about what they are."""
    home = next((base for base in reversed(cls.__mro__) if name in vars(base)), cls)
    said = check_of(vars(home).get(name))
    return said is not None and said.calls and not said.before_loading and home.__module__ not in OF_ALL


def first_paragraph(value: object) -> str:
    """The first paragraph of a docstring on one line: the contract of a check, the meaning of a fixture."""
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")


def words_of(cls: type) -> dict[str, str]:
    """The keys of the attribute `conformance`, with their meanings, for plugins that a class checks."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= vars(base).get("words", {})
    return found
