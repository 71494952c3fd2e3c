"""Log stores with one fault each."""

import asyncio
import json
from pathlib import Path
from typing import ClassVar


class Right:
    """Keeps the contract; the base of all that follow."""

    conformance: ClassVar = {"file": "log.jsonl"}
    path = Path("log.jsonl")

    def line(self, record):
        return (json.dumps(record, ensure_ascii=False) + "\n").encode()

    def append(self, data):
        with self.path.open("ab") as file:
            file.write(data)

    async def write(self, record):
        self.append(self.line(record))
        await asyncio.sleep(0)

    async def close(self):
        pass


class StampsRecords(Right):
    async def write(self, record):
        record["time"] = 0.0
        await super().write(record)


class NeedsARecord(Right):
    async def close(self):
        self.path.read_bytes()


class PlainLettersOnly(Right):
    def line(self, record):
        return super().line(record).decode().encode("ascii", "replace")


class LastWriterWins(Right):
    async def write(self, record):
        before = self.path.read_bytes() if self.path.exists() else b""
        await asyncio.sleep(0)
        self.path.write_bytes(before + self.line(record))


class WritesAnew(Right):
    def __init__(self):
        self.lock = asyncio.Lock()

    async def write(self, record):
        async with self.lock:
            before = self.path.read_bytes() if self.path.exists() else b""
            self.path.write_bytes(b"")
            await asyncio.sleep(0)
            self.append(before + self.line(record))
            await asyncio.sleep(0)


class BeginsAnew(Right):
    def __init__(self):
        self.path.write_bytes(b"")
