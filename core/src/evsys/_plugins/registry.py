"""The registry: which plugins there are, which one a name means, and the plugin itself once it is asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evsys._plugins.scan import LOCAL, PluginEntry, normalized, scan
from evsys.protocols import KINDS

if TYPE_CHECKING:
    from evsys.errors import EvsysError

__all__ = ["PluginEntry", "Registry", "current_registry", "use_registry"]


class Registry:
    """Plugins of all kinds: installed distributions and a project's own registrations.

    Args:
        allow: only these installed plugins, as distributions, `kind:name` or `distribution/name`; None reads
            EVSYS_PLUGINS_ALLOW.
        deny: never these, alongside what EVSYS_PLUGINS_DENY lists; it wins over `allow`.
        entry_points: the installed entries; None scans the environment when first needed.

    `warnings` reports shadowed plugins, unusable metadata, and names in `allow` and `deny` that nothing has.
    """

    def __init__(
        self,
        *,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        entry_points: Iterable[PluginEntry] | None = None,
    ) -> None:
        from_env = _canonical_names(os.environ.get("EVSYS_PLUGINS_ALLOW", "").split(","))
        self._allow = (from_env or None) if allow is None else _canonical_names(allow)
        self._deny = _canonical_names([*deny, *os.environ.get("EVSYS_PLUGINS_DENY", "").split(",")])
        self._given = None if entry_points is None else tuple(entry_points)
        self._installed: dict[tuple[str, str], list[PluginEntry]] | None = None
        self._blocked: list[PluginEntry] = []
        self._local: dict[tuple[str, str], Any] = {}
        self._found: dict[tuple[str, str], PluginEntry] = {}
        self._loaded: dict[tuple[str, str], Any] = {}
        self.warnings: list[str] = []

    def _names(self) -> dict[tuple[str, str], list[PluginEntry]]:
        if self._installed is None:
            entries, warnings = scan()[:2] if self._given is None else (self._given, ())
            self.warnings += warnings
            self._installed = {}
            spellings: set[str] = set()
            for entry in entries:
                names = {entry.distribution, f"{entry.kind}:{entry.name}", entry.qualified}
                spellings |= names
                if names & self._deny or not (self._allow is None or names & self._allow):
                    self._blocked.append(entry)
                else:
                    self._installed.setdefault((entry.kind, entry.name), []).append(entry)
            for name in sorted(((self._allow or frozenset()) | self._deny) - spellings):
                from evsys._plugins.refusals import not_listed

                self.warnings.append(not_listed(name, spellings, denied=name in self._deny))
        return self._installed

    def entries(self, kind: str | None = None) -> list[PluginEntry]:
        """All plugins (of one kind), sorted; local ones included. Imports nothing."""
        _require_kind(kind)
        entries = [entry for same_name in self._names().values() for entry in same_name]
        entries += [_local_entry(*key, plugin) for key, plugin in self._local.items()]
        entries = [entry for entry in entries if kind in {None, entry.kind}]
        order = list(KINDS)
        return sorted(entries, key=lambda entry: (order.index(entry.kind), entry.name, entry.distribution))

    def register(self, kind: str, name: str, plugin: Any) -> None:
        """Add a plugin of the running project. It wins over an installed one of the same name, with a warning.

        Raises:
            PluginConflictError: another object of the project has this name.
        """
        _require_kind(kind)
        if "/" in name:
            raise ValueError(f"{kind} {name!r}: a name can't contain '/', the end of a distribution's")
        known = self._local.get((kind, name), plugin)
        # A cell of a notebook or a reloaded module defines the same plugin again; that isn't a second plugin.
        if known is not plugin and _local_entry(kind, name, known) != _local_entry(kind, name, plugin):
            from evsys._plugins.refusals import registered_twice

            raise registered_twice(_local_entry(kind, name, known), _local_entry(kind, name, plugin))
        self._local[kind, name] = plugin
        self._found.clear()
        self._loaded.pop((kind, f"{LOCAL}/{name}"), None)

    def find(self, kind: str, name: str) -> PluginEntry:
        """The plugin that `name` stands for: a name, a qualified `distribution/name`, a member of a family such as
        `pass@3`, or a known alias.

        Raises:
            PluginNotFoundError: nothing has this name; lists close, installed, blocked and installable names.
            PluginConflictError: several distributions offer it; lists the qualified spellings.
        """
        if (kind, name) not in self._found:
            matches = self._match(kind, name)
            family = re.fullmatch(r"(.+[@^])(0|[1-9][0-9]{0,8})", name)
            members: list[PluginEntry] = []
            if family:
                params = {"k": int(family[2])}
                members = [entry._replace(params=params) for entry in self._match(kind, f"{family[1]}k")]
            matches = matches or members
            if not matches:
                from evsys._plugins.refusals import known_names

                matches = self._match(kind, known_names()["aliases"].get(kind, {}).get(name, name))
            if len(matches) != 1 and not (matches and matches[0].local):
                from evsys._plugins.refusals import ambiguous, not_found

                if matches:
                    raise ambiguous(kind, name, matches)
                raise not_found(kind, name, self.entries(kind), self._blocked)
            self._found[kind, name] = matches[0]
            hides = f"{kind} {name!r} is the project's own and hides"
            hidden = [*matches[1:], *(entry for entry in members if matches[0].local and not entry.local)]
            found = dict.fromkeys(f"{hides} {entry}" for entry in hidden)
            self.warnings += [text for text in found if text not in self.warnings]
        return self._found[kind, name]

    def _match(self, kind: str, name: str) -> list[PluginEntry]:
        owner, qualified, bare = name.rpartition("/")
        matches = [_local_entry(kind, name, self._local[kind, name])] if (kind, name) in self._local else []
        matches += self._names().get((kind, name), [])
        if matches or not qualified:
            return matches
        return [entry for entry in self._match(kind, bare) if entry.distribution == normalized(owner)]

    def get(self, kind: str, name: str) -> Any:
        """The plugin: a class, a function or a module, imported if need be and checked against its kind's protocol.

        Raises:
            PluginLoadError: importing it failed; names kind, name, distribution, version and cause.
            PluginIncompatibleError: it was made for another version of the protocol or of evsys.
            PluginContractError: it lacks what the protocol asks for.
        """
        entry = self.find(kind, name)
        key = (kind, f"{entry.distribution}/{entry.name}")
        if key not in self._loaded:
            from evsys._plugins.loading import check_contract, load

            plugin = self._local[kind, entry.name] if entry.local else load(entry)
            check_contract(entry, plugin)
            self._loaded[key] = plugin
        return self._loaded[key]

    def config_of(self, kind: str, name: str) -> type | None:
        """The class of the plugin's parameters, or None where it takes none."""
        from evsys._plugins.building import config_of

        return config_of(self.get(kind, name))

    def schema(self, kind: str, name: str) -> dict[str, Any]:
        """JSON Schema of the plugin's parameters."""
        from evsys._plugins.building import schema_of

        return schema_of(self.find(kind, name), self.get(kind, name))

    def build(self, kind: str, name: str, params: Mapping[str, Any] | None = None, *, path: str = "$") -> Any:
        """The plugin made from `params`, all its fields given by keyword, defaults included.

        Functions come back as they are, with their params bound if they have a `Config`.

        Args:
            kind: one of `evsys.protocols.KINDS`.
            name: any spelling that `find` knows.
            params: plain values as in an experiment file.
            path: the place of `params` in that file, under which problems are reported.

        Raises:
            ConfigError: all problems of the params at once.
        """
        from evsys._plugins.building import build

        return build(self.find(kind, name), self.get(kind, name), params or {}, path)

    def check(self) -> list[tuple[PluginEntry, EvsysError | None]]:
        """Import each plugin, read its params, and say what is wrong with it; one failing stops nothing.

        `warnings` then also names those that took long to import, in CPU time.
        """
        from time import process_time

        from evsys._plugins.loading import SLOW_SECONDS
        from evsys.errors import EvsysError

        outcome: list[tuple[PluginEntry, EvsysError | None]] = []
        for entry in self.entries():
            wrong, start = None, process_time()
            try:
                self.get(entry.kind, entry.qualified)
                if entry.kind not in {"plugin", "command"}:
                    self.schema(entry.kind, entry.qualified)
            except EvsysError as exc:
                wrong = exc
            outcome.append((entry, wrong))
            if (took := process_time() - start) > SLOW_SECONDS:
                self.warnings.append(f"{entry} ({entry.value}) took {took:.1f} s to import")
        return outcome


def _require_kind(kind: str | None) -> None:
    if kind is not None and kind not in KINDS:
        from evsys._plugins.refusals import not_found

        raise not_found(kind, "", (), ())


def _canonical_names(names: Iterable[str]) -> frozenset[str]:
    """Names of plugins as they are matched: the distribution in its one spelling, the part after `:` or `/` as it is."""
    parts = [name.strip().partition("/") for name in names if name.strip()]
    return frozenset((a if ":" in a else normalized(a)) + slash + b for a, slash, b in parts)


def _local_entry(kind: str, name: str, plugin: Any) -> PluginEntry:
    where = plugin if hasattr(plugin, "__qualname__") else type(plugin)
    return PluginEntry(kind, name, LOCAL, value=f"{where.__module__}:{where.__qualname__}", local=True)


_current: ContextVar[Registry | None] = ContextVar("evsys_registry", default=None)


@lru_cache(maxsize=1)
def _process_registry() -> Registry:
    return Registry()


def current_registry() -> Registry:
    """The registry in use here: the one given to `use_registry`, else one for the process."""
    return _current.get() or _process_registry()


@contextmanager
def use_registry(registry: Registry) -> Iterator[Registry]:
    """Make `registry` the current one inside, for this task and those started from it."""
    token = _current.set(registry)
    try:
        yield registry
    finally:
        _current.reset(token)
