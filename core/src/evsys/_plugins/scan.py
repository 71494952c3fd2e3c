"""One pass over the installed metadata: every evsys entry point, without importing any plugin.

`importlib.metadata` would do the same in ten times the time (it imports the email parser and reads each group again).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from evsys.protocols import KINDS

__all__ = ["LOCAL", "Installed", "PluginEntry", "Scan", "normalized", "scan"]

LOCAL = "project"
"""Stands for the distribution in the qualified name of a project's own plugin."""

_KIND_OF_GROUP = {group: kind for kind, group in KINDS.items()}


class PluginEntry(NamedTuple):
    """A plugin by its metadata. `value` is `module:attribute`; `params` are those that a family's name fixes.

    A named tuple rather than an attrs class, since listing what is installed has to be cheaper than importing attrs.
    """

    kind: str
    name: str
    distribution: str
    version: str = ""
    value: str = ""
    local: bool = False
    params: Mapping[str, Any] = {}

    @property
    def qualified(self) -> str:
        """The spelling that is never ambiguous: `distribution/name`."""
        name = f"{self.name[:-1]}{self.params['k']}" if self.params else self.name
        return f"{self.distribution}/{name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.qualified}" + (f" ({self.version})" if self.version else "")


class Installed(NamedTuple):
    """An installed distribution: its version and the folder of its metadata."""

    version: str
    info: str


def normalized(distribution: str) -> str:
    """The one spelling of a distribution's name: lower case, hyphens."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


class Scan(NamedTuple):
    """The result of one pass: the entries, the faults of their lists, and all distributions by name."""

    entries: tuple[PluginEntry, ...]
    warnings: tuple[str, ...]
    distributions: Mapping[str, Installed]


def scan() -> Scan:
    """All distributions on `sys.path`, read once per process and path."""
    return _scan(tuple(sys.path))


@lru_cache(maxsize=8)
def _scan(path: tuple[str, ...]) -> Scan:
    seen: dict[str, Installed] = {}
    entries: list[PluginEntry] = []
    warnings: list[str] = []
    for folder in filter(os.path.isdir, (part or os.curdir for part in path)):
        for info in _list_metadata(folder, warnings):
            stem, _, extension = info.rpartition(".")
            project, _, version = stem.partition("-")
            name = normalized(project)
            # Of two with one name the first on the path wins; `~name` is what a broken uninstall leaves behind.
            if extension in {"dist-info", "egg-info"} and not info.startswith("~") and name not in seen:
                seen[name] = Installed(version, f"{folder}/{info}")
                _read(f"{folder}/{info}", name, version, entries, warnings)
    return Scan(tuple(entries), tuple(warnings), seen)


def _list_metadata(folder: str, warnings: list[str]) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - here too pathlib is ten times slower
    except OSError as exc:
        warnings.append(f"{folder}: the plugins there can't be found: {exc}")
        return []


def _read(info: str, name: str, version: str, entries: list[PluginEntry], warnings: list[str]) -> None:
    try:
        with open(f"{info}/entry_points.txt", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is ten times slower
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, UnicodeDecodeError) as exc:
        warnings.append(f"{name}: its entry_points.txt can't be read: {exc}")
        return
    for group, line in _lines(text):
        plugin, found, value = (part.strip() for part in line.partition("="))
        if group not in _KIND_OF_GROUP:
            hint = "".join(f"; did you mean {near!r}?" for near in _similar_group(group) or ())
            warnings.append(f"{name}: {plugin!r} is in the unknown group {group!r} and can't be found{hint}")
        elif "/" in plugin or not (plugin and found and value):
            why = ", and a name has no '/'" if "/" in plugin else ""
            warnings.append(f"{name}: {line!r} in its group {group!r} isn't `name = module:attribute`{why}")
        else:
            entries.append(PluginEntry(_KIND_OF_GROUP[group], plugin, name, version, value))


def _lines(text: str) -> Iterator[tuple[str, str]]:
    group, ours = "", False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
            # `evsys.skills` has folders for coding agents, no plugins; evsys-agents reads it.
            ours = group in _KIND_OF_GROUP or (group != "evsys.skills" and _similar_group(group) is not None)
        elif ours and line and line[0] not in "#;":
            yield group, line


@cache
def _similar_group(group: str) -> list[str] | None:
    """The group of evsys that an unknown one is spelt like, at most one; None for a group of another tool."""
    lower = group.lower()
    first = re.split(r"[\W_]", lower, maxsplit=1)[0]
    is_ours = lower.startswith("evsys")
    # Few groups come further than this, so that listing what is installed needn't import difflib.
    if not is_ours and (len(first) > 6 or len({*"evsy"}.intersection(first)) < 3):
        return None
    from difflib import get_close_matches

    near = get_close_matches(lower, _KIND_OF_GROUP, n=1, cutoff=0.8)
    spelt_alike = near and (is_ours or get_close_matches(first, ["evsys"], cutoff=0.8))
    return near if spelt_alike or f"{lower}.".startswith("evsys.") else None
