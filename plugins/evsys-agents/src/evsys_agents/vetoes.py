"""The counts of the gates in a project: each veto as a line, each call that a gate looked at as a byte."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from evsys_agents.gates import Veto
from evsys_agents.project import Project

__all__ = ["GATES", "GateCount", "count_call", "counts", "record_veto", "vetoes"]

GATES = ("benchmark", "sealed", "run")
FORMAT = 1

_VETOES = "vetoes.jsonl"


class GateCount(NamedTuple):
    """How often a gate looked at a call, and how often it refused one."""

    gate: str
    calls: int
    vetoes: int

    @property
    def hit_rate(self) -> float | None:
        """The share of refused calls; None before the first call."""
        return self.vetoes / self.calls if self.calls else None


def count_call(project: Project, gate: str) -> None:
    """Count a call that a gate looked at: one byte, so that hosts in parallel lose none."""
    _append(project, f"calls-{gate}", b".")


def record_veto(project: Project, veto: Veto, *, host: str, tool: str) -> None:
    """Put a veto on record."""
    line = {
        "format": FORMAT,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": host,
        "tool": tool,
        **veto._asdict(),
    }
    _append(project, _VETOES, json.dumps(line, ensure_ascii=True).encode() + b"\n")


def _append(project: Project, name: str, content: bytes) -> None:
    make_folder(project)
    descriptor = os.open(project.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def make_folder(project: Project) -> None:
    """Make the folder of the gates, which stays out of the project's sources as the record does."""
    if project.folder.is_dir():
        return
    project.folder.mkdir(parents=True, exist_ok=True)
    ignored = project.root / ".evsys/.gitignore"
    if not ignored.exists():
        ignored.write_text("# Written by evsys; yours to change.\n*\n", encoding="utf-8")


def counts(project: Project) -> list[GateCount]:
    """The counts of all gates."""
    refused = vetoes(project)
    return [
        GateCount(
            gate, _size(project.folder / f"calls-{gate}"), sum(each.get("gate") == gate for each in refused)
        )
        for gate in GATES
    ]


def vetoes(project: Project) -> list[dict[str, Any]]:
    """All vetoes on record, the oldest first; a torn last line is left out."""
    try:
        lines = (project.folder / _VETOES).read_bytes().split(b"\n")
    except OSError:
        return []
    return [json.loads(line) for line in lines[:-1] if line]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
