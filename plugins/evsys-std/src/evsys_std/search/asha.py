"""`asha`: many arms, of which only the promising ones train to their end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys.optional import declared
from evsys.types import SearchAxis
from evsys_std.search.grid import Grid
from evsys_std.search.random import Random
from evsys_std.search.sobol import Sobol
from evsys_std.search.space import Arm, Entry

__all__ = ["Asha"]


class Asha:
    """Stops an arm at a rung unless it is among the best of those that have reached it so far (Li et al. 2018, the stopping variant).

    Rungs lie at `min_steps`, and each `reduction_factor` times further on. At a rung an arm is judged by its first score there, which the
    success metric's entry makes in training (`run_every`): it continues where it is among the best 1/`reduction_factor` of all arms that
    have a score on that rung. No arm waits for others; one that is better than all before it always continues. Arms with equal scores
    share the places left for them, first come, first served: a score of few tasks has many ties, and continuing with all of
    them would save nothing.
    """

    name: ClassVar[str] = "asha"
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"min_steps": 2}}

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `asha`."""

        min_steps: int = option(..., "optimiser steps that every arm makes: the first rung", ge=1)
        reduction_factor: int = option(3, "one in this many arms continues from a rung", ge=2)
        rungs: int | None = option(None, "number of rungs; by default as many as the training reaches", ge=1)
        noise_floor: float = option(
            0.0,
            "an arm is stopped only if it trails by more than this, the difference between equal arms",
            ge=0,
        )
        sampler: Literal["random", "grid", "sobol"] = option("random", "how the arms are proposed")
        arms: int = option(27, "number of arms; ignored for a grid", ge=1)
        points: int = option(5, "values of each range, for a grid", ge=1)
        seed: int = option(0, "seed of the arms, or of their order in a grid", ge=0)

    def __init__(self, **fields: Any) -> None:
        self.config = config = self.Config(**fields)
        self._sampler: Random | Grid | Sobol
        if config.sampler == "grid":
            # In the order of a file arms may get better and better, and then each would be the best so far.
            self._sampler = Grid(points=config.points, shuffle=config.seed)
        elif config.sampler == "sobol":
            self._sampler = Sobol(arms=config.arms, seed=config.seed)
        else:
            self._sampler = Random(arms=config.arms, seed=config.seed)

    def ask(self, history: Sequence[Entry], space: Sequence[SearchAxis]) -> list[Arm]:
        """The sampler's next arm."""
        return self._sampler.ask(history, space)

    def size(self, space: Sequence[SearchAxis]) -> int:
        """As many as the sampler proposes."""
        return self._sampler.size(space)

    def validate_space(self, space: Sequence[SearchAxis]) -> Iterable[str]:
        """The sampler's faults of the space."""
        validate = declared(self._sampler, "validate_space")
        return () if validate is None else validate(space)

    def keep(self, history: Sequence[Entry], n: int, step: int, score: float) -> bool:
        """Whether arm `n` continues after a score in its training."""
        rung = self._rung(step)
        if rung is None:
            return True
        scores: dict[int, float] = {}
        stopped: set[int] = set()
        for entry in history:
            first = next((one for one in entry["scores"] if self._rung(one[0]) == rung), None)
            if first is None:
                continue
            if entry["n"] == n:
                if first[0] != step:  # it was judged on this rung before
                    return True
                continue
            scores[entry["n"]] = _finite(first[1])
            if entry.get("stopped_at") == first[0]:
                stopped.add(entry["n"])
        mine = _finite(score)
        if mine == -math.inf:
            return False
        places = max(1, (len(scores) + 1) // self.config.reduction_factor)
        ahead = [arm for arm, other in scores.items() if other - self.config.noise_floor > mine]
        equal = [arm for arm, other in scores.items() if other == mine and arm not in stopped]
        return len(ahead) + (0 if self.config.noise_floor else len(equal)) < places

    def _rung(self, step: int) -> int | None:
        """The number of the last rung reached after so many steps; None before the first."""
        config = self.config
        reached, at = 0, config.min_steps
        while at <= step and (config.rungs is None or reached < config.rungs):
            reached += 1
            at *= config.reduction_factor
        return reached - 1 if reached else None


def _finite(score: float | None) -> float:
    """A score, the worst where it isn't a number."""
    return score if score is not None and math.isfinite(score) else -math.inf
