"""The places where each coding agent looks for a plugin, in a project and in a home folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

__all__ = ["HOSTS", "Entry", "Layout", "layout_of"]

HOSTS = ("claude", "codex", "cursor", "generic")

_PLUGIN = "evsys"
_SHARED = ".agents/plugins"

type Files = Mapping[str, bytes]


@attrs.frozen(kw_only=True)
class Entry:
    """A value that a file of the host's own gets: appended to the list at `path`, or set as the key at its end.

    Attributes:
        file: relative to the base folder; JSON.
        path: the keys that lead to the list, or to the value.
        value: the value.
        document: what the file holds in addition if there was none.
    """

    file: str
    path: tuple[str, ...]
    value: Any
    document: Mapping[str, Any] = attrs.field(factory=dict)
    listed: bool = True


@attrs.frozen(kw_only=True)
class Layout:
    """The files and entries that a host gets below a base folder: files by their path, entries in its own files, and the next step for its user."""

    base: Path
    receipt: str
    files: Files
    entries: Sequence[Entry] = ()
    next_step: str


def layout_of(host: str, plugin: Files, *, project: Path, user: bool) -> Layout:
    """The layout of the plugin folder for a host.

    Args:
        host: one of `HOSTS`.
        plugin: the files of the plugin folder by their relative path.
        project: the project's folder.
        user: for the home folder instead of the project.
    """
    base = Path.home() if user else project
    match host:
        case "claude":
            return _claude(plugin, base, user=user)
        case "codex":
            return _codex(plugin, base)
        case "cursor":
            return (
                _folder(plugin, base, ".cursor/plugins/local", _RESTART_CURSOR)
                if user
                else _cursor(plugin, base)
            )
        case _:
            return _folder(plugin, base, _SHARED, f"Point your host at {base / _SHARED / _PLUGIN}.")


_RESTART_CURSOR = "Restart Cursor."


def _folder(plugin: Files, base: Path, place: str, next_step: str, entries: Sequence[Entry] = ()) -> Layout:
    folder = f"{place}/{_PLUGIN}"
    return Layout(
        base=base,
        receipt=f"{folder}/.evsys-install.json",
        files={f"{folder}/{name}": content for name, content in plugin.items()},
        entries=entries,
        next_step=next_step,
    )


def _claude(plugin: Files, base: Path, *, user: bool) -> Layout:
    """A plugin folder below `skills/` is loaded as `evsys@skills-dir`."""
    settings = os.environ.get("CLAUDE_CONFIG_DIR") if user else None
    if settings:
        return _folder(plugin, Path(settings), "skills", "Start a new session of Claude Code.")
    step = "Start a new session of Claude Code" + ("." if user else ", and trust the folder.")
    return _folder(plugin, base, ".claude/skills", step)


def _codex(plugin: Files, base: Path) -> Layout:
    """The folder, and an entry of the marketplace next to it, from which Codex installs it."""
    entry = {
        "name": _PLUGIN,
        "source": {"source": "local", "path": f"./{_SHARED}/{_PLUGIN}"},
        "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
        "category": "Developer Tools",
    }
    listed = Entry(
        file=f"{_SHARED}/marketplace.json", path=("plugins",), value=entry, document={"name": "evsys-local"}
    )
    step = f"Run `codex plugin marketplace add {base}`, then `codex plugin add evsys@evsys-local`."
    return _folder(plugin, base, _SHARED, step, [listed])


def _cursor(plugin: Files, base: Path) -> Layout:
    """Cursor loads plugins of a user only, so a project gets the parts where Cursor reads those of a project."""
    parts = ("skills/", "agents/")
    hooks = json.loads(plugin["hooks/cursor.json"])
    servers = json.loads(plugin[".mcp.json"])["mcpServers"]
    entries = [
        Entry(
            file=".cursor/hooks.json",
            path=("hooks", event),
            value=hook,
            document={"version": hooks["version"]},
        )
        for event, of_event in hooks["hooks"].items()
        for hook in of_event
    ]
    entries += [
        Entry(file=".cursor/mcp.json", path=("mcpServers", name), value=server, listed=False)
        for name, server in servers.items()
    ]
    return Layout(
        base=base,
        receipt=".cursor/.evsys-install.json",
        files={f".cursor/{name}": content for name, content in plugin.items() if name.startswith(parts)},
        entries=entries,
        next_step=_RESTART_CURSOR,
    )
