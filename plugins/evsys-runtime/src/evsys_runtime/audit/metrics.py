"""The standard metrics of one task, written down a second time from what `docs/reference/metrics.md` says of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import attrs

__all__ = ["TaskMetric", "task_metric"]

_FAMILY = re.compile(r"(pass@|pass\^)(\d+)")
_STANDARD = "evsys-verifiers-std"
_THRESHOLD_ROUNDING = 1e-9
_MOST_SUBSETS = 20_000


@attrs.frozen(kw_only=True)
class TaskMetric:
    """A metric that is the mean over tasks of `of_task`, which needs `needs` scored samples.

    `of_rewards`: its values have the range of the rewards; else they lie between 0 and 1.
    """

    of_task: Callable[[Sequence[float]], float]
    needs: int = 1
    of_rewards: bool = False

    def value(self, rewards: Sequence[float]) -> float | None:
        """The metric of a task; None where too few samples have a score."""
        return self.of_task(rewards) if len(rewards) >= self.needs else None

    def values(self, rewards: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """The metric of each task that has enough scored samples."""
        found = ((task, self.value(one)) for task, one in rewards.items())
        return {task: value for task, value in found if value is not None}


def task_metric(name: str, entry: Mapping[str, Any]) -> TaskMetric | None:
    """The metric that results call `name`; None for one that isn't among the standard ones.

    Args:
        name: such as `mean_reward`, `pass@4` or `best_of_k[k=2]`.
        entry: the resolved benchmark entry, which has its params.
    """
    base, _, bracket = name.partition("[")
    family = _FAMILY.fullmatch(base)
    kind = f"{family[1]}k" if family else base
    spec = _spec(base, kind, entry)
    if spec is None:
        return None
    params = {"k": int(family[2])} if family else {}
    params |= spec.get("params") or {}
    params |= dict(re.findall(r"(k|pass_threshold)=([\d.e+-]+)", bracket))
    threshold = float(params.get("pass_threshold") or entry.get("pass_threshold") or 1.0)
    passed = partial(_passes, threshold=threshold)
    k = int(params.get("k") or 1)
    known = {
        "mean_reward": TaskMetric(of_task=_mean, of_rewards=True),
        "pass_rate": TaskMetric(of_task=lambda rewards: _mean([*map(passed, rewards)])),
        "pass@k": TaskMetric(of_task=lambda rewards: _any_of(k, [*map(passed, rewards)]), needs=k),
        "pass^k": TaskMetric(
            of_task=lambda rewards: 1.0 - _any_of(k, [not passed(r) for r in rewards]), needs=k
        ),
        "best_of_k": TaskMetric(of_task=partial(_best_of, k), needs=k, of_rewards=True),
    }
    return known.get(kind)


def _spec(base: str, kind: str, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The metric's `{kind, params}` in the entry, or an empty one for a metric that isn't listed; None for a plugin of someone else."""
    for spec in entry.get("metrics") or ():
        package, _, listed = str(spec["kind"]).rpartition("/")
        if listed in (base, kind):
            return spec if package in ("", _STANDARD) else None
    return {}


def _passes(reward: float, threshold: float) -> bool:
    return reward >= threshold - _THRESHOLD_ROUNDING * max(1.0, abs(threshold))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _any_of(k: int, passed: Sequence[bool]) -> float:
    """The probability that one of k samples, drawn without replacement, passed: one minus the product of the chances of failing."""
    failures, none = passed.count(False), 1.0
    for drawn in range(k):
        none *= max(0, failures - drawn) / (len(passed) - drawn)
    return 1.0 - none


def _best_of(k: int, rewards: Sequence[float]) -> float:
    """The mean of the best over all ways to choose k of the samples; by their ranks where there are many ways."""
    if math.comb(len(rewards), k) <= _MOST_SUBSETS:
        return _mean([max(chosen) for chosen in combinations(rewards, k)])
    ways = math.comb(len(rewards), k)
    return math.fsum(reward * (math.comb(rank, k - 1) / ways) for rank, reward in enumerate(sorted(rewards)))
