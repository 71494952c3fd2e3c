"""Searches with one fault each."""

import random
from pathlib import Path

RATES = (1e-4, 3e-4, 1e-3, 3e-3)


class Right:
    """Keeps the contract, two arms a round; the base of all that follow."""

    def ask(self, history):
        rates = RATES[len(history) : len(history) + 2]
        return [{"run.algorithm.params.learning_rate": rate} for rate in rates]


class GivesPaths(Right):
    def ask(self, history):
        return [{**arm, "run.data.path": Path("a.jsonl")} for arm in super().ask(history)]


class DrawsOnAndOn(Right):
    def __init__(self):
        self.random = random.Random(0)

    def ask(self, history):
        return [{"run.algorithm.params.learning_rate": self.random.random()}]


class TakesNotes(Right):
    def ask(self, history):
        arms = super().ask(history)
        history.append({"asked": len(arms)})
        return arms


class NeedsValues(Right):
    def ask(self, history):
        best = max((record["value"] for record in history), default=0.0)
        return [{**arm, "run.seed": int(best + 1 > 0)} for arm in super().ask(history)]
