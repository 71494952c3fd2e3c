"""The journal of a research run: one durable line for each finished stage, from which a killed run continues."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evsys_record.encoding import now
from evsys_record.jsonl import JsonlWriter, read_jsonl

__all__ = ["Journal"]


class Journal:
    """Lines with `seq`, `at`, `event` and its facts. A stage whose line is there isn't repeated; any other one is."""

    def __init__(self, path: Path) -> None:
        self.lines: list[Mapping[str, Any]] = list(read_jsonl(path, missing_ok=True))
        self._writer = JsonlWriter(path, durable=True)

    def append(self, event: str, **facts: Any) -> Mapping[str, Any]:
        """Put a stage on record; it survives a power cut once this returns."""
        line = {"seq": len(self.lines), "at": now(), "event": event, **facts}
        self._writer.write(line)
        self.lines.append(line)
        return line

    def find(self, event: str, **facts: Any) -> Mapping[str, Any] | None:
        """The last line of an event with these facts."""
        line: Mapping[str, Any]
        for line in reversed(self.lines):
            if line["event"] == event and all(line.get(key) == value for key, value in facts.items()):
                return line
        return None

    def total(self, fact: str) -> float:
        """The sum of a number over all lines that have it."""
        return sum(float(line[fact]) for line in self.lines if line.get(fact) is not None)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
