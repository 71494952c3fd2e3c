"""The standard metrics: each is the mean over tasks of a value per task, and says in which direction it is better.

`task_value` is that value; from it evsys makes the interval. Sums are exact (`math.fsum`), so the order of tasks and of
samples changes no bit. A metric of nothing is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import comb
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys.types import reaches

__all__ = ["BestOfK", "MeanReward", "PassAtK", "PassHatK", "PassRate"]


class _TaskMean:
    """The mean over tasks of `task_value`."""

    direction: ClassVar[Literal["max", "min"]] = "max"
    needs_samples: int = 1

    def task_value(self, rewards: Sequence[float]) -> float:
        """The value of one task from the rewards of its scored samples."""
        raise NotImplementedError

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        """The mean over tasks; NaN when there is none."""
        if not task_rewards:
            return math.nan
        return math.fsum(self.task_value(rewards) for rewards in task_rewards) / len(task_rewards)


class MeanReward(_TaskMean):
    """The mean over tasks of each task's mean reward."""

    name: ClassVar[str] = "mean_reward"
    value_range: ClassVar[str] = "rewards"

    def task_value(self, rewards: Sequence[float]) -> float:
        """Mean reward of the samples."""
        return math.fsum(rewards) / len(rewards)


def _threshold() -> float:
    return option(1.0, "A reward from here on counts as passed.")


def _samples() -> int:
    return option(..., "Number of samples.", ge=1)


@attrs.frozen(kw_only=True)
class PassRateParams:
    """The condition for a pass."""

    pass_threshold: float = _threshold()


class PassRate(_TaskMean):
    """The mean over tasks of the share of samples that passed."""

    name: ClassVar[str] = "pass_rate"
    value_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    Config = PassRateParams

    def __init__(self, *, pass_threshold: float = 1.0) -> None:
        self.pass_threshold = pass_threshold

    def task_value(self, rewards: Sequence[float]) -> float:
        """Share of the samples that passed."""
        return sum(reaches(reward, self.pass_threshold) for reward in rewards) / len(rewards)


@attrs.frozen(kw_only=True)
class PassAtKParams:
    """How many samples count, and what counts as passed."""

    k: int = _samples()
    pass_threshold: float = _threshold()


class _OfK(_TaskMean):
    """An estimator over all ways to choose k of a task's samples; it needs at least k of them."""

    Config = PassAtKParams
    name: ClassVar[str]
    value_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"k": 2}}

    def __init__(self, *, k: int, pass_threshold: float = 1.0) -> None:
        self.k = self.needs_samples = _at_least_one(k)
        self.pass_threshold = pass_threshold

    def _counts(self, rewards: Sequence[float]) -> tuple[int, int]:
        """How many samples there are, and how many passed."""
        _require_samples(self.name, self.k, rewards)
        return len(rewards), sum(reaches(reward, self.pass_threshold) for reward in rewards)


def _at_least_one(k: int) -> int:
    if k < 1:
        raise ValueError(f"k is {k}, and must be at least 1")
    return k


def _require_samples(name: str, k: int, rewards: Sequence[float]) -> None:
    if len(rewards) < k:
        raise ValueError(f"{name[:-1]}{k} needs {k} scored samples of a task, and there are {len(rewards)}")


class PassAtK(_OfK):
    """pass@k: the probability that at least one of k samples passes.

    Unbiased estimator `1 - C(n - c, k) / C(n, k)` for c passes among n samples (Chen et al. 2021, arXiv:2107.03374).
    """

    name: ClassVar[str] = "pass@k"

    def task_value(self, rewards: Sequence[float]) -> float:
        """The estimate for one task.

        Raises:
            ValueError: fewer than k samples.
        """
        n, c = self._counts(rewards)
        return 1.0 - comb(n - c, self.k) / comb(n, self.k)


class PassHatK(_OfK):
    """pass^k: the probability that all of k samples pass.

    Unbiased estimator `C(c, k) / C(n, k)` for c passes among n samples.
    """

    name: ClassVar[str] = "pass^k"

    def task_value(self, rewards: Sequence[float]) -> float:
        """The estimate for one task.

        Raises:
            ValueError: fewer than k samples.
        """
        n, c = self._counts(rewards)
        return comb(c, self.k) / comb(n, self.k)


@attrs.frozen(kw_only=True)
class BestOfKParams:
    """How many samples count."""

    k: int = _samples()


class BestOfK(_TaskMean):
    """best_of_k: the reward of the best of k samples, as a verifier that picks it would get it.

    Unbiased: the mean of the maximum over all ways to choose k of the n samples, `sum_i r_(i) C(i - 1, k - 1) / C(n, k)` with
    `r_(i)` the i-th smallest reward. With rewards of 0 and 1 it is pass@k.
    """

    name: ClassVar[str] = "best_of_k"
    value_range: ClassVar[str] = "rewards"
    Config = BestOfKParams
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"k": 2}}

    def __init__(self, *, k: int) -> None:
        self.k = self.needs_samples = _at_least_one(k)

    def task_value(self, rewards: Sequence[float]) -> float:
        """The estimate for one task.

        Raises:
            ValueError: fewer than k samples.
        """
        _require_samples(self.name, self.k, rewards)
        ordered = sorted(rewards, reverse=True)
        weight, terms = self.k / len(ordered), []
        for above, reward in enumerate(ordered[: len(ordered) - self.k + 1]):
            terms.append(weight * reward)
            below = len(ordered) - 1 - above
            weight *= (below - self.k + 1) / max(
                below, 1
            )  # C(i - 2, k - 1) / C(i - 1, k - 1) with i - 1 = below
        mean = math.fsum(terms)
        return min(max(mean, ordered[-1]), ordered[0])  # rounding leads out of the rewards
