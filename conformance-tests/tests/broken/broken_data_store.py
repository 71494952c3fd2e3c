"""Data stores with one fault each."""

import asyncio
import copy
from typing import ClassVar

ROWS = [{"text": "žluť 四"}, {"text": "b"}, {"text": "c"}]


class Right:
    conformance: ClassVar = {"refs": ["small"], "rows": ROWS}

    def __init__(self):
        self.rows = copy.deepcopy(ROWS)

    async def pull(self, ref):
        if ref != "small":
            raise LookupError(ref)
        return copy.deepcopy(self.rows)


class GivesTexts(Right):
    conformance: ClassVar = {"refs": ["small"]}

    async def pull(self, ref):
        return [row["text"] for row in await super().pull(ref)]


class PlainLettersOnly(Right):
    async def pull(self, ref):
        return [{"text": row["text"].encode("ascii", "ignore").decode()} for row in await super().pull(ref)]


class SharesItsRows(Right):
    async def pull(self, ref):
        await super().pull(ref)
        return self.rows


class OneCursor(Right):
    async def pull(self, ref):
        await super().pull(ref)
        self.place, found = 0, []
        while self.place < len(self.rows):
            found.append(dict(self.rows[self.place]))
            self.place += 1
            await asyncio.sleep(0)
        return found


class NothingIsFine(Right):
    async def pull(self, ref):
        return await super().pull(ref) if ref == "small" else []


class ShorterIsFine(Right):
    conformance: ClassVar = {"refs": ["small"], "rows": ROWS, "damaged": ["torn"]}

    async def pull(self, ref):
        return copy.deepcopy(self.rows[:1]) if ref == "torn" else await super().pull(ref)
