"""Launchers with one fault each; their arms are tasks of this process."""

import asyncio
from typing import ClassVar


class Right:
    """Keeps the contract; the base of all that follow."""

    conformance: ClassVar = {
        "arms": [{"name": "a", "seconds": 0}, {"name": "c", "seconds": 0}],
        "failing": {"name": "b", "seconds": -1},
        "lasting": {"name": "d", "seconds": 60},
    }

    async def launch(self, arms):
        return await asyncio.gather(*(self.result(arm) for arm in arms))

    async def result(self, arm):
        try:
            await self.work(arm)
        except ValueError as exc:
            return {"run_id": arm["name"], "status": "failed", "reason": str(exc)}
        return {"run_id": arm["name"], "status": "completed"}

    async def work(self, arm):
        if arm["seconds"] < 0:
            raise ValueError("time doesn't run backwards")
        await asyncio.sleep(arm["seconds"])


class GivesSets(Right):
    async def result(self, arm):
        return {**await super().result(arm), "tags": {"a"}}


class ByName(Right):
    async def launch(self, arms):
        return sorted(await super().launch(arms), key=lambda result: result["run_id"])


class MarksArms(Right):
    async def work(self, arm):
        arm["launched"] = True
        await super().work(arm)


class NeedsArms(Right):
    async def launch(self, arms):
        return [await self.result(arms[0]), *await super().launch(arms[1:])]


class OneFailsAll(Right):
    async def result(self, arm):
        await self.work(arm)
        return await super().result(arm)


class GoesOn(Right):
    async def launch(self, arms):
        try:
            return await super().launch(arms)
        except asyncio.CancelledError:
            return []
