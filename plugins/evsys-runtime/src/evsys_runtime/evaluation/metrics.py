"""Metrics of a benchmark: built by name, computed over scored rewards only, each with its interval and its
direction.

A metric class may declare `direction` ("max" or "min"), `needs_samples` (tasks with fewer scored samples are left
out and counted), `value_range` (the values that it can have, which its interval keeps to), and `task_value` if the
metric is the mean over tasks of such a value of one task's rewards (rollouts, for a metric of those), which gives
it an exact interval. Any other metric gets its interval by bootstrap over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import attrs

from evsys.errors import PLUGIN_FAILURES, ConfigError, EvsysError, PluginContractError, Problem, boundary
from evsys.optional import declared
from evsys.types import MetricValue, Rollout, Score
from evsys_runtime.config.metrics import measure, needs_rollouts, number_of, samples_needed
from evsys_runtime.evaluation.failures import failure_of
from evsys_stats.intervals import Interval, bootstrap_interval, mean_interval
from evsys_stats.ranges import Range, declared_range, range_of, seen_range

if TYPE_CHECKING:
    from evsys import Registry

__all__ = ["BoundMetric", "Scores", "bind_metric", "breakdown", "rewards_by_task", "score", "value_of_tasks"]

Direction = Literal["max", "min"]


@attrs.frozen(kw_only=True)
class BoundMetric:
    """A metric ready to compute. `declared` is False where the plugin names no direction and "max" is assumed.

    `value_range` is as the plugin declares it, None where it doesn't.
    """

    name: str
    plugin: Any
    direction: Direction = "max"
    declared: bool = True
    needs_samples: int = 1
    value_range: Range | str | None = None

    @property
    def over_rollouts(self) -> bool:
        """True for a metric of whole rollouts (tokens, seconds, money), crashed ones included."""
        return needs_rollouts(self.plugin)

    def task_value(self, rewards: Sequence[float]) -> float | None:
        """The metric of one task alone; None if its samples don't suffice, or the metric needs rollouts or several tasks."""
        if self.over_rollouts or len(rewards) < self.needs_samples:
            return None
        own = declared(self.plugin, "task_value")
        if own is not None:
            with boundary("evaluation", self.name):
                return number_of(own(rewards))
        try:
            return number_of(measure(self.plugin, {"task": rewards}))
        except PLUGIN_FAILURES:
            return None  # it is defined for several tasks only, so it is not a mean over tasks

    def possible(self, rewards: Range | None) -> Range | None:
        """The values that it can have, given the range of rewards; None where that isn't known."""
        return range_of(self.value_range, rewards)


@attrs.frozen(kw_only=True)
class Scores:
    """The input of metrics.

    `rewards` has the scored rewards of every task that has any, in sample order; `rollouts` all rollouts by task;
    `clusters` the cluster of each task, empty if tasks are independent; `reward_range` the one that the verifiers
    declare.
    """

    rewards: Mapping[str, Sequence[float]]
    rollouts: Mapping[str, Sequence[Rollout]]
    clusters: Mapping[str, str] = attrs.field(factory=dict)
    reward_range: Range | None = None

    @property
    def possible_rewards(self) -> Range | None:
        """The possible rewards, by declaration, else by observation; None if neither says."""
        return self.reward_range or seen_range(
            reward for rewards in self.rewards.values() for reward in rewards
        )

    def of(self, tasks: Sequence[str]) -> Scores:
        """The part of some tasks."""
        wanted = set(tasks)
        return Scores(
            rewards={task: value for task, value in self.rewards.items() if task in wanted},
            rollouts={task: value for task, value in self.rollouts.items() if task in wanted},
            clusters=self.clusters,
            reward_range=self.possible_rewards,
        )


def bind_metric(
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    registry: Registry,
    num_samples: int | None = None,
    pass_threshold: float | None = None,
    label: str | None = None,
    path: str = "$",
) -> BoundMetric:
    """Build a metric by its name; families such as `pass@3` bring their own k.

    Args:
        name: as the experiment file has it.
        params: its params. `pass_threshold` is added for a metric whose Config has it, and for no other.
        registry: where it is looked up.
        num_samples: samples of each task; a metric that needs more is refused.
        pass_threshold: of the benchmark entry.
        label: what results call it; its name by default.
        path: the place of the metric in the experiment file.

    Raises:
        ConfigError: wrong params, or more samples needed than are drawn.
        PluginError: no such metric, or it can't be loaded.
    """
    given = dict(params or {})
    if pass_threshold is not None and "pass_threshold" not in given and _has_threshold(registry, name):
        given["pass_threshold"] = pass_threshold
    plugin = registry.build("metric", name, given, path=f"{path}.params" if params else path)
    needs = samples_needed(plugin, name)
    if num_samples is not None and needs > num_samples:
        message = f"{label or name} needs {needs} samples of each task, and the entry draws {num_samples}"
        raise ConfigError([Problem(path=path, message=message, hint=f"set num_samples to at least {needs}")])
    direction = declared(plugin, "direction")
    if direction not in (None, "max", "min"):
        raise PluginContractError(f"metric {name!r} declares direction {direction!r}; use 'max' or 'min'")
    return BoundMetric(
        name=label or name,
        plugin=plugin,
        direction=cast("Direction", direction or "max"),
        declared=direction is not None,
        needs_samples=needs,
        value_range=declared_range(plugin, name, "value_range"),
    )


def _has_threshold(registry: Registry, name: str) -> bool:
    config: Any = registry.config_of("metric", name)
    names = {field.name for field in attrs.fields(config)} if config and attrs.has(config) else None
    if names is None:
        names = set(getattr(config, "model_fields", None) or getattr(config, "__dataclass_fields__", {}))
    return "pass_threshold" in names


def rewards_by_task(rollouts: Mapping[str, Sequence[Rollout]]) -> dict[str, tuple[float, ...]]:
    """The rewards of each task's scored samples, in sample order; tasks without any are left out."""
    rewards = {
        task: tuple(
            rollout.score.value
            for rollout in sorted(samples, key=lambda rollout: rollout.sample_index)
            if isinstance(rollout.score, Score)
        )
        for task, samples in rollouts.items()
    }
    return {task: values for task, values in rewards.items() if values}


def score(
    metrics: Sequence[BoundMetric], scores: Scores, *, seed: int = 0
) -> tuple[dict[str, MetricValue], list[EvsysError]]:
    """Each metric's value with its interval, and what went wrong.

    A metric without a task to compute on has the value None. So has one that failed or gave no finite number; its
    error is among the second value, and the other metrics are computed all the same.
    """
    values: dict[str, MetricValue] = {}
    failures: list[EvsysError] = []
    for metric in metrics:
        try:
            values[metric.name] = _value(metric, scores, seed)
        except EvsysError as exc:
            failures.append(exc)
            reason = failure_of(exc).placed.removeprefix(f"evaluation {metric.name!r} failed: ")
            values[metric.name] = MetricValue(
                value=None, direction=metric.direction, method="failed", reason=reason
            )
    return values, failures


def value_of_tasks(
    metric: BoundMetric, rewards: Mapping[str, Sequence[float]], tasks: Collection[str]
) -> float | None:
    """A metric of rewards on some of their tasks; None if it isn't available there, or needs whole rollouts."""
    part = {task: values for task, values in rewards.items() if task in tasks}
    usable = {task: values for task, values in part.items() if len(values) >= metric.needs_samples}
    if metric.over_rollouts or not usable:
        return None
    return _finite(metric, usable)


def breakdown(
    metrics: Sequence[BoundMetric], scores: Scores, labels: Mapping[str, Mapping[str, str]], *, seed: int = 0
) -> dict[str, dict[str, dict[str, MetricValue]]]:
    """The metrics of parts of a benchmark: `{key: {label: {metric: value}}}`.

    Args:
        metrics: what is computed.
        scores: of the whole benchmark.
        labels: for each key the label of each task that has one.
        seed: of bootstraps.
    """
    parts: dict[str, dict[str, dict[str, MetricValue]]] = {}
    for key, by_task in labels.items():
        groups: dict[str, list[str]] = {}
        for task, label in by_task.items():
            groups.setdefault(label, []).append(task)
        parts[key] = {
            label: score(metrics, scores.of(groups[label]), seed=seed)[0] for label in sorted(groups)
        }
    return parts


def _value(metric: BoundMetric, scores: Scores, seed: int) -> MetricValue:
    usable, values = _measurable(metric, scores)
    excluded = len(scores.rollouts) - len(usable)
    if not usable:
        return MetricValue(value=None, direction=metric.direction, excluded=excluded, method="not available")
    value = _finite(metric, usable)
    interval: Interval | None
    if values is not None:
        interval = mean_interval(
            values,
            scores.clusters,
            binary=not metric.over_rollouts and all(len(rewards) == 1 for rewards in usable.values()),
            possible=metric.possible(scores.possible_rewards),
        )
    else:
        interval = bootstrap_interval(
            list(usable), _resample_metric(metric, usable), scores.clusters, seed=seed
        )
    return MetricValue(
        value=value,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        direction=metric.direction,
        n=len(usable),
        excluded=excluded,
        method=interval.method if interval else None,
    )


def _measurable(
    metric: BoundMetric, scores: Scores
) -> tuple[dict[str, Sequence[Any]], dict[str, float] | None]:
    """The tasks that a metric is computed on, and its value of each, None where it is not a mean over tasks.

    A metric of rollouts returns NaN if it is unknown for a task, for example without a known price.
    """
    task_value = declared(metric.plugin, "task_value")
    usable: dict[str, Sequence[Any]]
    if metric.over_rollouts:
        usable = dict(scores.rollouts)
    else:
        usable = {task: value for task, value in scores.rewards.items() if len(value) >= metric.needs_samples}
    if task_value is None:
        return usable, None
    with boundary("evaluation", metric.name):
        values = {task: number_of(task_value(measured)) for task, measured in usable.items()}
    if metric.over_rollouts:
        values = {task: value for task, value in values.items() if not math.isnan(value)}
        usable = {task: usable[task] for task in values}
    return usable, values


def _finite(metric: BoundMetric, usable: Mapping[str, Sequence[Any]]) -> float:
    with boundary("evaluation", metric.name):
        value = number_of(measure(metric.plugin, usable))
        if not math.isfinite(value):
            raise ValueError(f"it gave {value}, which is not a finite number")
    return value


def _resample_metric(
    metric: BoundMetric, usable: Mapping[str, Sequence[Any]]
) -> Callable[[Sequence[str]], float]:
    """The metric of a list of tasks in which some come several times; each time is a task of its own."""

    def of(tasks: Sequence[str]) -> float:
        with boundary("evaluation", metric.name):
            return number_of(
                measure(metric.plugin, {f"{task}#{place}": usable[task] for place, task in enumerate(tasks)})
            )

    return of
