"""Plugins of the smaller kinds that keep their contracts."""

import asyncio
import shutil
from typing import ClassVar

import attrs
import broken_search
import click
from broken_launcher import Right as InProcess

from evsys_conformance import FakeModel

__all__ = ["InProcess"]


class Scripted(FakeModel):
    """A client of no service at all."""

    def __init__(self):
        super().__init__("42")


class Switches:
    def __init__(self):
        self.on = False

    async def start(self):
        await asyncio.sleep(0)
        self.on = True

    async def stop(self):
        self.on = False


@attrs.frozen(kw_only=True)
class Copies:
    folder: str = "deployed"

    async def deploy(self, checkpoint):
        where = shutil.copytree(checkpoint.directory, self.folder, dirs_exist_ok=True)
        return {"path": str(where)}


@attrs.frozen(kw_only=True)
class RandomSearch(broken_search.Right):
    """Two arms a round, and stops what falls behind the best of the others."""

    most = 8

    def ask(self, history, space):
        first = super().ask(history, space)
        more = super().ask([*history, *({"values": arm} for arm in first)], space)
        return (*first, *more)

    def keep(self, history, n, step, score):
        others = [one for entry in history for at, one in entry["scores"] if entry["n"] != n and at == step]
        return not any(score < one for one in others)


class Processes:
    """Each arm is a process of its own."""

    conformance: ClassVar = {
        "arms": [{"name": "b", "code": 0}, {"name": "a", "code": 0}],
        "failing": {"name": "c", "code": 3},
    }

    async def launch(self, arms):
        return [await self._one(arm) for arm in arms]

    async def _one(self, arm):
        process = await asyncio.create_subprocess_exec("sh", "-c", f"exit {arm['code']}")
        status = "failed" if await process.wait() else "completed"
        return {"arm": arm["name"], "status": status, "pid": process.pid}


@click.group()
def commands():
    """Do this and that."""
