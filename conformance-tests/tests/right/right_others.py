"""Plugins of the smaller kinds that keep their contracts."""

import asyncio
import copy
import shutil

import attrs
import broken_search
import click
from broken_launcher import Right as Subprocesses

from evsys.types import Proposal, Stop
from evsys_conformance import FakeModel

__all__ = ["Subprocesses"]


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


class Climbs:
    """Measures the best round again, then moves on from it, and ends after some rounds."""

    async def propose(self, state):
        best = max(
            (each for each in state.rounds if each.score is not None),
            key=lambda each: each.score,
            default=None,
        )
        if len(state.rounds) > 8:
            return Stop(reason="enough rounds")
        if best is not None and len(state.rounds) % 3 == 2:
            return Proposal(hypothesis="the best holds", expected_effect=0.0, repeats=best.number)
        config = copy.deepcopy(state.start)
        config["run"]["algorithm"]["params"]["learning_rate"] = 0.001 * (2 + len(state.rounds))
        return Proposal(config=config, hypothesis="a higher rate is better", expected_effect=0.02)


@click.group()
def commands():
    """Do this and that."""
