"""The most that a step of a sampling algorithm takes, known before anything is sampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys.optional import declared
from evsys.types import Datum, Message

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Renderer
    from evsys.types import HarborTask
    from evsys_runtime.training.rollout_params import RolloutParams

__all__ = ["Foreseen", "foresee", "foresee_rollouts", "scoring_seconds", "task_prompt"]

_DIGIT = 16  # every model has so many tokens


@attrs.frozen(kw_only=True, eq=False)
class Foreseen:
    """The work of a step whose answers are all as long as they may be.

    Attributes:
        data: what is trained: the prompts, with made-up answers.
        prompt_tokens: of the prompts, each counted once.
        answers: how many are sampled.
        answer_tokens: of the longest of them.
        at_once: how many are sampled at a time.
        readings: how often the model itself reads what is trained, alongside training: for a teacher or a reference.
    """

    data: Sequence[Datum]
    prompt_tokens: int
    answers: int
    answer_tokens: int
    at_once: int
    readings: int = 0

    @property
    def sampling(self) -> Mapping[str, int]:
        """All but the data, by name: what a client's `estimate` takes alongside data and steps."""
        return attrs.asdict(self, filter=lambda field, _: field.name != "data")


def foresee(
    prompts: Sequence[Sequence[int]],
    *,
    count: int,
    most: int,
    limit: int | None,
    at_once: int | None = None,
    readings: int = 0,
) -> Foreseen | None:
    """The work of a step that answers each prompt `count` times; None if no prompt leaves room for an answer.

    Args:
        prompts: token ids of each.
        count: answers of each.
        most: tokens of an answer at most.
        limit: tokens of a prompt and its answer at most; None is no limit.
        at_once: answers sampled at a time; by default all.
        readings: see `Foreseen`.
    """
    rooms = [most if limit is None else min(most, limit - len(prompt)) for prompt in prompts]
    asked = [(prompt, room) for prompt, room in zip(prompts, rooms, strict=True) if room > 0 and len(prompt)]
    if not asked:
        return None
    answers = count * len(asked)
    return Foreseen(
        data=[_placeholder_datum(prompt, room, number) for prompt, room in asked for number in range(count)],
        prompt_tokens=sum(len(prompt) for prompt, _ in asked),
        answers=answers,
        answer_tokens=max(room for _, room in asked),
        at_once=min(answers, at_once or answers),
        readings=readings,
    )


def foresee_rollouts(
    tasks: Iterable[HarborTask],
    renderer: Renderer,
    params: RolloutParams,
    *,
    count: int,
    max_tokens: int,
    limit: int | None,
    readings: int = 0,
) -> Foreseen | None:
    """The work of a step that works on each task `count` times, as `foresee`. The prompts that an agent adds to its
    task aren't known.

    Args:
        tasks: of the step.
        renderer: of the model.
        params: of the agent and its limits; without a `max_turns` a rollout is taken to be one answer.
        count: rollouts of each task.
        max_tokens: of one answer.
        limit: tokens of a rollout at most; None is no limit.
        readings: see `Foreseen`.
    """
    return foresee(
        [task_prompt(task, renderer, params.system_prompt) for task in tasks],
        count=count,
        most=max_tokens * (params.max_turns or 1),
        limit=limit,
        at_once=params.n_concurrent,
        readings=readings,
    )


def task_prompt(task: HarborTask, renderer: Renderer, system_prompt: str | None) -> Sequence[int]:
    """The prompt of a plain chat for a task, as token ids. The prompts that an agent adds aren't known."""
    told = task.instruction
    said = (Message(role="user", content=told),) if isinstance(told, str) else tuple(told)
    before = () if system_prompt is None else (Message(role="system", content=system_prompt),)
    return renderer.render_prompt((*before, *said))


def _placeholder_datum(prompt: Sequence[int], room: int, number: int) -> Datum:
    """A prompt and an answer that soon differs from those of other numbers, so that little is computed for both."""
    answer: NDArray[np.int64] = np.zeros(room, np.int64)
    for place in range(min(room, 4)):
        answer[place] = number // _DIGIT**place % _DIGIT
    tokens = np.concatenate([np.asarray(prompt, np.int64), answer])
    weights = np.zeros(len(tokens) - 1, np.float32)
    weights[len(prompt) - 1 :] = 1
    return Datum(tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:], "weights": weights})


def scoring_seconds(evaluate: object, start: int, limit: int) -> float | None:
    """Seconds that the scorings from step `start` to `limit` take; None if that isn't known."""
    if evaluate is None:
        return 0.0
    estimate = declared(evaluate, "estimate")
    return None if estimate is None else estimate(start, limit)
