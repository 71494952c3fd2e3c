"""Names that mean nothing or too much: the errors that say what to write or install instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from re import split
from typing import Any

from evsys._plugins.scan import PluginEntry, normalized
from evsys.errors import PluginConflictError, PluginNotFoundError
from evsys.protocols import KINDS

__all__ = [
    "NOT_YET",
    "ambiguous",
    "closest",
    "known_names",
    "not_found",
    "not_listed",
    "registered_twice",
]

NOT_YET = "not in this version"
"""How everything planned answers until it is there: plugins, keys of the experiment file, commands."""


def closest(name: object, names: Iterable[str]) -> str | None:
    """A hint that names what is spelt most like `name`, or None where nothing is near."""
    near = get_close_matches(str(name), list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else None


@cache
def known_names() -> dict[str, dict[str, dict[str, Any]]]:
    """`known.json`: by section and kind, names of evsys' own plugins by distribution, other names of plugins, what to use instead,
    what is planned, what can be installed.
    """
    from importlib.resources import files
    from json import loads

    return loads(files("evsys._plugins").joinpath("known.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]  # JSON


def not_found(
    kind: str, name: str, entries: Sequence[PluginEntry], blocked: Sequence[PluginEntry]
) -> PluginNotFoundError:
    """The error for a name that nothing has."""
    if kind not in KINDS:
        hint = closest(kind, KINDS) or f"kinds: {', '.join(KINDS)}"
        return PluginNotFoundError(f"unknown kind of plugin {kind!r}", hint=hint, kind=kind)
    names = dict.fromkeys(entry.name for entry in entries)
    stopped = [str(e) for e in blocked if e.kind == kind and name in {e.name, e.qualified}]
    if name in known_names()["planned"].get(kind, {}) and not stopped:
        hint = known_names()["planned"][kind][name]
        return PluginNotFoundError(f"{kind} {name!r} is {NOT_YET}", hint=hint, kind=kind, name=name)
    if stopped:
        hint = f"{stopped[0]} is installed, but EVSYS_PLUGINS_ALLOW or EVSYS_PLUGINS_DENY keeps it out"
    elif package := known_names()["install"].get(kind, {}).get(name):
        hint = f"install it with: pip install {package}"
    elif instead := known_names()["instead"].get(kind, {}).get(name):
        hint = instead
    else:
        installed = f"installed: {', '.join(names)}" if names else f"no {kind} is installed"
        hint = closest(name, [*names, *(entry.qualified for entry in entries)]) or installed
    return PluginNotFoundError(f"no {kind} is called {name!r}", hint=hint, kind=kind, name=name)


def ambiguous(kind: str, name: str, matches: Sequence[PluginEntry]) -> PluginConflictError:
    """The error for a name that several distributions offer."""
    spellings = dict.fromkeys(repr(entry.qualified) for entry in matches)
    owners = " and ".join(f"{entry.distribution} {entry.version} ({entry.value})" for entry in matches)
    hint = f"write {' or '.join(spellings)}" if len(spellings) > 1 else f"reinstall {matches[0].distribution}"
    return PluginConflictError(f"{kind} {name!r} is offered by {owners}", hint=hint, kind=kind, name=name)


def registered_twice(known: PluginEntry, other: PluginEntry) -> PluginConflictError:
    """The error for a second object under a project's name."""
    message = f"{known.kind} {known.name!r} is registered twice: {known.value} and {other.value}"
    hint = "give one of them another name"
    return PluginConflictError(message, hint=hint, kind=known.kind, name=known.name)


def not_listed(name: str, spellings: Iterable[str], *, denied: bool) -> str:
    """The warning about a name in the allow or the deny list that no installed plugin has."""
    same = [repr(known) for known in sorted(spellings) if name == normalized(split("[:/]", known)[-1])]
    hint = f"did you mean {' or '.join(same)}?" if same else closest(name, spellings)
    listed = "EVSYS_PLUGINS_DENY" if denied else "EVSYS_PLUGINS_ALLOW"
    return f"{listed} names {name!r}, which no installed plugin is; {hint or 'see evsys list'}"
