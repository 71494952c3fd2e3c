"""How far training runs of one recipe differ, estimated from similar recipes: what a claim about a recipe needs that has few runs of its own.

The model is hierarchical: the variance of each recipe's runs is one of a population, and each recipe's sample variance estimates it with
its own degrees of freedom. Source: Smyth 2004, "Linear models and empirical Bayes methods for assessing differential expression", for variances
shrunken towards those of others; degrees of freedom are those of a scaled inverse chi-square with the same relative spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys.types import RecipeRuns, RunDeviation
from evsys_record.text import list_names
from evsys_runtime.experiment.verdict.tables import number

__all__ = ["deviation_words", "recipe_runs", "run_deviation", "with_own_runs"]

MIN_FREEDOM = 3
"""As much as four runs of one recipe give; with less, no claim about other runs is made."""

_ASSUMED_SPREAD = 0.5
"""The squared relative spread of variances between recipes assumed before any is seen: that of four degrees of freedom."""

_ASSUMED_RECIPES = 2.0
"""The assumption counts as much as so many recipes with three degrees of freedom each."""


def recipe_runs(
    experiment_id: str | None, arm: str, runs: Sequence[str], scores: NDArray[np.float64]
) -> RecipeRuns:
    """The runs of one recipe from their scores by task, [S, n], S and n at least 2.

    The variance of a run's mean has a part that comes from sampling: what a run does on single tasks, beyond its mean and that of the task,
    as it would differ if the same model were evaluated again.
    """
    count, n = scores.shape
    means = scores.mean(axis=1)
    left = scores - means[:, None] - scores.mean(axis=0) + scores.mean()
    sampling = float(np.square(left).sum()) / ((count - 1) * (n - 1)) / n
    return RecipeRuns(
        experiment_id=experiment_id,
        arm=arm,
        scores=dict(zip(runs, map(float, means), strict=True)),
        sampling_variance=sampling,
    )


def _freedom(recipe: RecipeRuns) -> int:
    return len(recipe.scores) - 1


def _variance(recipe: RecipeRuns) -> float:
    return float(np.var(list(recipe.scores.values()), ddof=1))


def run_deviation(metric: str, recipes: Sequence[RecipeRuns]) -> RunDeviation | None:
    """The deviation of a further recipe like these; None if there are too few.

    The expected variance is the pooled one. A further recipe's variance is off by how much those of recipes differ,
    and by how few runs the pooled one rests on; both relative spreads add up, and v degrees of freedom have one of
    2 / v.
    """
    recipes = [recipe for recipe in recipes if len(recipe.scores) > 1]
    total = sum(map(_freedom, recipes))
    if total < MIN_FREEDOM:
        return None
    pooled = math.fsum(_freedom(each) * _variance(each) for each in recipes) / total
    sampling = math.fsum(_freedom(each) * each.sampling_variance for each in recipes) / total
    spread = _relative_spread(recipes, pooled)
    return RunDeviation(
        metric=metric,
        standard_deviation=math.sqrt(pooled),
        sampling_deviation=math.sqrt(sampling),
        freedom=2.0 / (spread + 2.0 / total),
        runs=sum(len(each.scores) for each in recipes),
        experiments=tuple(dict.fromkeys(each.experiment_id for each in recipes if each.experiment_id)),
        recipes=tuple(recipes),
    )


def _relative_spread(recipes: Sequence[RecipeRuns], pooled: float) -> float:
    """The squared relative spread of the recipes' variances, shrunken towards the assumed one.

    With d degrees of freedom, d (s²/pooled - 1)² is expected to be 2 + (d + 2) times that spread.
    """
    seen = 0.0
    if pooled > 0:
        seen = math.fsum(_freedom(r) * (_variance(r) / pooled - 1.0) ** 2 - 2.0 for r in recipes) + 2.0
    weight = math.fsum(_freedom(r) + 2.0 for r in recipes[1:])  # one recipe can't differ from its own mean
    assumed = 5.0 * _ASSUMED_RECIPES
    return max(0.0, (assumed * _ASSUMED_SPREAD + seen * (weight > 0)) / (assumed + weight))


def with_own_runs(deviation: RunDeviation, own: Sequence[RecipeRuns]) -> RunDeviation:
    """The deviation of two recipes of which some runs are known: their own variance, shrunken towards that of the others."""
    own = [recipe for recipe in own if len(recipe.scores) > 1]
    known = sum(map(_freedom, own))
    if not known:
        return attrs.evolve(deviation, recipes=())
    total = deviation.freedom + known

    def shrunken(of_others: float, values: Sequence[float]) -> float:
        squares = math.fsum(_freedom(each) * value for each, value in zip(own, values, strict=True))
        return math.sqrt((deviation.freedom * of_others**2 + squares) / total)

    return attrs.evolve(
        deviation,
        standard_deviation=shrunken(deviation.standard_deviation, list(map(_variance, own))),
        sampling_deviation=shrunken(deviation.sampling_deviation, [each.sampling_variance for each in own]),
        freedom=total,
        recipes=(),
    )


def deviation_words(deviation: RunDeviation) -> str:
    """The deviation and its source."""
    return (
        f"run-to-run deviation {number(deviation.standard_deviation)}, known from {deviation.runs} runs of "
        f"{list_names(deviation.experiments)}"
    )
