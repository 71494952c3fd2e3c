"""The commands that installed distributions bring, by their metadata: `evsys --help` lists them and imports nothing for it.

The registry knows them as well, but reading it imports `evsys`, which takes longer than the rest of `--help`.
"""

from __future__ import annotations

import os
import sys

from evsys_cli.table import COMMANDS

__all__ = ["brought_commands"]

GROUP = "[evsys.commands]"


def brought_commands() -> dict[str, str]:
    """A line for each installed command that isn't in the table: its distribution, or why it can't be run."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for folder in sys.path:
        for info in _infos(folder or os.curdir):
            stem = info.rpartition(".")[0]
            distribution = stem.partition("-")[0].replace("_", "-").lower()
            if distribution in seen:
                continue
            seen.add(distribution)
            for name in _names(f"{folder or os.curdir}/{info}/entry_points.txt"):
                if "." in name:  # of a group, whose own help lists it
                    continue
                if name not in COMMANDS:
                    taken = name in found
                    found[name] = f"{found[name]} and {distribution}: neither runs" if taken else distribution
                elif COMMANDS[name].distribution is None:
                    found[f"{name} ({distribution})"] = f"can't be run: {name} is a command of evsys-cli"
    return found


def _infos(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - pathlib is ten times slower
    except OSError:  # `evsys list` reports it
        return []
    return [name for name in names if name.endswith((".dist-info", ".egg-info")) and not name.startswith("~")]


def _names(path: str) -> list[str]:
    """The names in the group of commands of an entry_points.txt."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is ten times slower
            text = file.read()
    except (OSError, UnicodeDecodeError):  # `evsys list` reports it
        return []
    if GROUP not in text:
        return []
    lines = text.partition(GROUP)[2].partition("\n[")[0].splitlines()
    pairs = (line.partition("=") for line in map(str.strip, lines) if line and line[0] not in "#;")
    return [name.strip() for name, equals, _ in pairs if equals]
