"""Metrics as they are called: with lists of rewards, or with rollouts; and a trial on made-up ones before anything is spent."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evsys.errors import PLUGIN_FAILURES, Problem
from evsys.optional import declared
from evsys_runtime.places import place_of

if TYPE_CHECKING:
    from evsys.types import Rollout

__all__ = ["measure", "needs_rollouts", "number_of", "samples_needed", "try_metric"]

_OF_K = re.compile(r"[^@^]+[@^](\d{1,4})")
"""Names such as `pass@2` and `pass^4`."""

_HINT = (
    "compute(task_rewards) receives a list with one inner list per task: the rewards of the task's samples"
)
_HINT_ROLLOUTS = "compute_rollouts(task_rollouts) receives a mapping of task ids to lists of rollouts"


def needs_rollouts(plugin: Any) -> bool:
    """Whether a metric looks at whole rollouts, those without a score too, rather than at rewards."""
    return not hasattr(plugin, "compute")


def samples_needed(plugin: Any, name: str) -> int:
    """How many samples of a task a metric needs: `needs_samples`, else the k of a name such as `pass@2`, else 1."""
    needed = declared(plugin, "needs_samples")
    if isinstance(needed, int):
        return max(1, needed)
    of_k = _OF_K.fullmatch(name)
    return max(1, int(of_k[1])) if of_k is not None else 1


def measure(plugin: Any, tasks: Mapping[str, Sequence[Any]]) -> Any:
    """The value of a metric on the rewards of these tasks, or on their rollouts. The lists it receives are its own."""
    if needs_rollouts(plugin):
        return plugin.compute_rollouts(dict(tasks))
    return plugin.compute([list(rewards) for rewards in tasks.values()])


def number_of(value: Any) -> float:
    """The result of a metric, as a float.

    Raises:
        TypeError: it is not a number; a text that spells one is not either.
    """
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("it is async; define it with a plain `def`")
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"it returned {type(value).__name__}, not a number")
    return float(value)


def try_metric(
    plugin: Any, name: str, path: str, *, samples: int, rewards: tuple[float, float] = (0.0, 1.0)
) -> Problem | None:
    """Call a metric on three made-up tasks: one that always fails, one that always passes, one that does both in turn.

    Args:
        plugin: the metric.
        name: what the file calls it.
        path: where it is in the file.
        samples: how many samples each task has.
        rewards: the lowest and highest reward.

    Returns:
        What is wrong: it raises an error, or returns something other than a finite number. A metric of rollouts may return NaN.
    """
    low, high = rewards
    rows = {"failed": [low] * samples, "passed": [high] * samples, "mixed": [high, low] * samples}
    made: dict[str, list[Any]] = {task: row[:samples] for task, row in rows.items()}
    if needs_rollouts(plugin):
        made = {
            task: [_rollout(task, index, reward) for index, reward in enumerate(row)]
            for task, row in made.items()
        }
    hint = _HINT_ROLLOUTS if needs_rollouts(plugin) else _HINT
    try:
        values = [number_of(measure(plugin, made))]
        if callable(own := declared(plugin, "task_value")):
            values += [number_of(own(measured)) for measured in made.values()]
    except PLUGIN_FAILURES as exc:
        place = place_of(exc)
        message = f"the metric {name!r} fails on made-up rewards: {type(exc).__name__}: {exc}"
        return Problem(path=path, message=f"{message} ({place})" if place else message, hint=hint)
    odd = next((value for value in values if not math.isfinite(value)), None)
    if odd is None or (needs_rollouts(plugin) and math.isnan(odd)):
        return None
    return Problem(
        path=path,
        message=f"the metric {name!r} gives {odd} for made-up rewards, not a finite number",
        hint=hint,
    )


def _rollout(task: str, index: int, reward: float) -> Rollout:
    from evsys.types import Message, Rollout, Score, Turn, Usage

    answer = Message(role="assistant", content="an answer")
    return Rollout(
        task_id=task,
        sample_index=index,
        messages=(Message(role="user", content="a question"), answer),
        turns=(Turn(message=answer, prompt_tokens=[1, 2], tokens=[3], logprobs=[-0.5]),),
        output=answer.content,
        score=Score(value=reward),
        usage=Usage(prompt_tokens=2, completion_tokens=1, seconds=0.5, cost_usd=0.01),
    )
