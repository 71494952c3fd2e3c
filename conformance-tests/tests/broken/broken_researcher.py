"""Researchers with one fault each."""

import copy
import random
from pathlib import Path

from evsys.types import Proposal, Stop


class Right:
    """Keeps the contract; the base of all that follow."""

    async def propose(self, state):
        config = copy.deepcopy(state.start)
        self.change(config, random.Random(f"{state.seed}/{len(state.rounds)}"), state)
        return Proposal(config=config, hypothesis="another rate is better", expected_effect=0.02)

    def change(self, config, rng, state):
        config["run"]["algorithm"]["params"]["learning_rate"] = rng.uniform(1e-4, 1e-1)


class SaysNothing(Right):
    async def propose(self, state):
        proposal = await super().propose(state)
        return Proposal(config=proposal.config, hypothesis=" ", expected_effect=0.02)


class StopsWithoutReason(Right):
    async def propose(self, state):
        return Stop(reason="")


class GivesPaths(Right):
    def change(self, config, rng, state):
        super().change(config, rng, state)
        config["run"]["algorithm"]["params"]["lora_rank"] = Path("8")


class EditsTheBenchmark(Right):
    def change(self, config, rng, state):
        super().change(config, rng, state)
        config["metadata"]["benchmark"][0]["path"] = "easy.jsonl"


class DrawsOnAndOn(Right):
    def __init__(self):
        self.random = random.Random(0)

    def change(self, config, rng, state):
        super().change(config, self.random, state)


class ProposesAgain(Right):
    def change(self, config, rng, state):
        super().change(config, random.Random(0), state)


class TakesNotes(Right):
    async def propose(self, state):
        proposal = await super().propose(state)
        state.rounds and state.rounds[-1].changes.update(seen=True)
        return proposal


class NeedsScores(Right):
    def change(self, config, rng, state):
        super().change(config, rng, state)
        max((round(each.score, 3) for each in state.rounds), default=0)
