"""Which installed entry points `--evsys-conformance` means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evsys import PluginEntry, Registry
    from evsys_conformance.budget import Import

__all__ = ["ALL", "NothingToCheckError", "Selection", "select"]

ALL = "all"


class NothingToCheckError(Exception):
    """A name that no installed distribution with evsys entry points has. An empty run must not be green."""


@dataclass(frozen=True)
class Selection:
    """The entries to check, and the registry that loads them."""

    registry: Registry
    entries: tuple[PluginEntry, ...]
    _imports: dict[str, dict[tuple[str, str], Import]] = field(default_factory=dict)

    def of_kind(self, kind: str) -> list[PluginEntry]:
        """The entries of one kind."""
        return [entry for entry in self.entries if entry.kind == kind]

    @property
    def distributions(self) -> list[str]:
        """Their distributions."""
        return sorted({entry.distribution for entry in self.entries})

    def imports(self, distribution: str) -> dict[tuple[str, str], Import]:
        """The effects of importing its entries, by kind and qualified name; measured once, in a process of its own."""
        from evsys_conformance.budget import imports_of

        if distribution not in self._imports:
            keys = {
                (entry.kind, entry.qualified) for entry in self.entries if entry.distribution == distribution
            }
            self._imports[distribution] = imports_of(distribution, keys)
        return self._imports[distribution]


def select(wanted: Iterable[str]) -> Selection:
    """The entries of distributions, of single plugins written `distribution/name`, or `all`. Imports no plugin.

    Raises:
        NothingToCheckError: a name matches nothing.
    """
    from evsys import Registry

    registry = Registry()
    entries = registry.entries()
    chosen: list[PluginEntry] = []
    for name in wanted:
        owner, slash, plugin = name.partition("/")
        owner = re.sub(r"[-_.]+", "-", owner).lower()
        found = [
            entry
            for entry in entries
            if name == ALL or (entry.distribution == owner and (not slash or entry.name == plugin))
        ]
        if not found:
            offered = {entry.name for entry in entries if entry.distribution == owner}
            if offered:
                raise NothingToCheckError(_no_plugin(owner, plugin, offered))
            raise NothingToCheckError(_nothing(name, {entry.distribution for entry in entries}))
        chosen += [entry for entry in found if entry not in chosen]
    return Selection(registry, tuple(chosen))


def _no_plugin(distribution: str, plugin: str, offered: set[str]) -> str:
    near = get_close_matches(plugin, offered, n=1)
    hint = f"did you mean '{distribution}/{near[0]}'?" if near else f"it offers {', '.join(sorted(offered))}"
    return f"{distribution} offers no plugin {plugin!r}, so there is nothing to check; {hint}{_disabled_reminder()}"


def _disabled_reminder() -> str:
    """A reminder of the lists that keep plugins from being seen."""
    lists = [name for name in ("EVSYS_PLUGINS_ALLOW", "EVSYS_PLUGINS_DENY") if os.environ.get(name)]
    return f" ({' and '.join(lists)} may leave it out)" if lists else ""


def _nothing(name: str, distributions: set[str]) -> str:
    near = get_close_matches(name, distributions, n=1)
    known = ", ".join(sorted(distributions)) or "none at all"
    hint = f"did you mean {near[0]!r}?" if near else f"with entry points: {known}"
    what = "no distribution" if name == ALL else f"no installed distribution called {name!r}"
    return f"{what} has evsys entry points, so there is nothing to check; {hint}{_disabled_reminder()}"
