"""Data stores and log stores that keep their contract, each written in another way."""

import asyncio
import json
import os
from pathlib import Path
from typing import ClassVar

import attrs

ROWS = [{"text": "žluť 四", "tags": ["a", {"b": None}]}, {"text": "", "n": 0.5}]


class LazyRows:
    conformance: ClassVar = {"refs": ("a",), "rows": ROWS}

    async def pull(self, ref):
        if ref != "a":
            raise KeyError(ref)
        return (dict(row) for row in json.loads(json.dumps(ROWS)))


@attrs.frozen(kw_only=True)
class FilesWithAnEnd:
    """Each file says at its end how many rows it has."""

    conformance: ClassVar = {
        "params": {"folder": "rows"},
        "files": {"rows/small.txt": "one\ntwo\n#2\n", "rows/half.txt": "one\n"},
        "refs": ["small"],
        "rows": [{"text": "one"}, {"text": "two"}],
        "damaged": ["half"],
    }
    folder: Path

    async def pull(self, ref):
        text = await asyncio.to_thread((self.folder / f"{ref}.txt").read_text, encoding="utf-8")
        *lines, end = text.splitlines()
        if end != f"#{len(lines)}":
            raise ValueError(f"{ref} is half written")
        return [{"text": line} for line in lines]


class WritesInAThread:
    conformance: ClassVar = {"params": {"path": "deep/log.jsonl"}, "file": "deep/log.jsonl"}

    @attrs.frozen(kw_only=True)
    class Config:
        path: str

    def __init__(self, *, path):
        self.path = Path(path)

    async def write(self, record):
        await asyncio.to_thread(self._append, json.dumps(record).encode() + b"\n")

    def _append(self, line):
        self.path.parent.mkdir(exist_ok=True)
        file = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(file, line)
        os.close(file)

    async def close(self):
        """Nothing is open."""


class WritesAtTheEnd:
    """Keeps records until it is closed; doesn't say where they are."""

    def __init__(self):
        self.records = []

    async def write(self, record):
        self.records.append(dict(record))

    async def close(self):
        self.records.clear()
