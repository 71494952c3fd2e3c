"""Searches with one fault each."""

import random
from pathlib import Path


class Right:
    """Keeps the contract, one arm a round and six in all; the base of all that follow."""

    most = 6

    def ask(self, history, space):
        if len(history) >= self.most:
            return []
        there = [entry["values"] for entry in history]
        drawn = (self.draw(number, space) for number in range(len(history), len(history) + 50))
        return [arm for arm in drawn if arm not in there][:1]

    def draw(self, number, space):
        rng = random.Random(number)
        arm = {}
        for axis in space:
            if axis.applies(arm):
                arm[axis.path] = self.value(axis, rng)
        return arm

    def value(self, axis, rng):
        if axis.choices:
            return rng.choice(axis.choices)
        if axis.type == "int":
            return rng.randint(axis.low, axis.high)
        return rng.uniform(axis.low, axis.high)


class GivesPaths(Right):
    def ask(self, history, space):
        return [{**arm, "data.path": Path("a.jsonl")} for arm in super().ask([], space) if not history]


class LeavesTheSpace(Right):
    def value(self, axis, rng):
        value = super().value(axis, rng)
        return value if axis.choices or axis.type == "int" else value + axis.high


class KnowsNoConditions(Right):
    def draw(self, number, space):
        rng = random.Random(number)
        return {axis.path: self.value(axis, rng) for axis in space}


class SkipsAnAxis(Right):
    def draw(self, number, space):
        arm = super().draw(number, space)
        return {space[0].path: arm[space[0].path]}


class DrawsOnAndOn(Right):
    def __init__(self):
        self.random = random.Random(0)

    def draw(self, number, space):
        return super().draw(self.random.getrandbits(32), space)


class AsksAgain(Right):
    def ask(self, history, space):
        return [self.draw(0, space)] if len(history) < self.most else []


class GoesOn(Right):
    def ask(self, history, space):
        return super().ask(history[:5], space) or [self.draw(len(history), space)]


class TakesNotes(Right):
    def ask(self, history, space):
        arms = super().ask(history, space)
        history.append({"values": {}, "asked": len(arms)})
        return arms


class NeedsScores(Right):
    def ask(self, history, space):
        best = max((entry["score"] for entry in history), default=0.0)
        return super().ask(history, space) if best < 2 else []


class StopsByMood(Right):
    def __init__(self):
        self.asked = 0

    def keep(self, history, n, step, score):
        self.asked += 1
        return self.asked % 2 == 0
