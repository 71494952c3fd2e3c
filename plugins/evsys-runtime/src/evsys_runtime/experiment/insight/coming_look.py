"""Advice to settle a question at its next look, which has less of the level the more looks there were."""

from __future__ import annotations

import math
from statistics import NormalDist

import attrs

from evsys.types import Settling
from evsys_record import PastExperiment
from evsys_runtime.config.plan import ALPHA
from evsys_stats.alpha_spending import level_of_look
from evsys_stats.power import POWER

__all__ = ["coming_level", "settling_at_next_look"]


def coming_level(past: PastExperiment) -> float:
    """The level of the next look at the question of an experiment."""
    return level_of_look(1 if past.look is None else past.look.of + 1, ALPHA)


def settling_at_next_look(settling: Settling, past: PastExperiment) -> Settling:
    """The tasks and runs at the level of the next look; a conclusion counted them for the one right after it.

    Both grow with the square of the standard errors that a test of 80 % power needs.
    """
    if past.look is None or past.look.of == past.look.number:
        return settling
    family = max(1, len(past.comparisons))
    before = level_of_look(past.look.number + 1, ALPHA) / family
    times = (_errors(coming_level(past) / family) / _errors(before)) ** 2
    tasks = None if settling.tasks is None else math.ceil(settling.tasks * times)
    runs = None if settling.runs is None else math.ceil(settling.runs * times)
    return attrs.evolve(settling, tasks=tasks, runs=runs)


def _errors(level: float) -> float:
    normal = NormalDist()
    return normal.inv_cdf(1 - level / 2) + normal.inv_cdf(POWER)
