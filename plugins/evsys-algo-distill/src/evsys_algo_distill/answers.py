"""The student's own answers, with the logprobs that it gave their tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys.errors import AlgorithmError
from evsys.types import SamplingParams, Usage
from evsys_runtime.training.trajectories import Span, Trajectory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import SamplingClient
    from evsys.types import SampledSequence

__all__ = ["Answer", "Answers", "Prompt", "answers_to"]


@attrs.frozen(kw_only=True, eq=False)
class Prompt:
    """The student's prompt, and the one that the teacher reads in its place, as token ids."""

    row_id: str
    student: Sequence[int]
    teacher: Sequence[int]

    @property
    def token_count(self) -> int:
        """Tokens of both."""
        return len(self.student) + len(self.teacher)


@attrs.frozen(kw_only=True, eq=False)
class Answer:
    """The student's answer in one sequence: after a prompt, or in the turns of a conversation.

    Attributes:
        trajectory: all tokens, with the student's logprobs of its own.
        shown: the prompt that the teacher reads in place of the student's; None if it reads the same.
    """

    trajectory: Trajectory
    shown: Sequence[int] | None = None

    @property
    def tokens(self) -> NDArray[np.int64]:
        """[n], what was said."""
        return self.trajectory.tokens[self.trajectory.mask]

    @property
    def logprobs(self) -> NDArray[np.float64]:
        """[n], the student's, of what was said."""
        return self.trajectory.logprobs[self.trajectory.mask]

    @property
    def judged(self) -> tuple[list[int], NDArray[np.bool_]]:
        """The sequence that the teacher reads, [M], and where the answer is in it."""
        if self.shown is None:
            return self.trajectory.tokens.tolist(), self.trajectory.mask
        said = self.tokens.tolist()
        return [*self.shown, *said], np.arange(len(self.shown) + len(said)) >= len(self.shown)

    @property
    def read(self) -> int:
        """How many tokens the teacher reads."""
        if self.shown is None:
            return len(self.trajectory)
        return len(self.shown) + self.trajectory.sampled


@attrs.frozen(kw_only=True, eq=False)
class Answers:
    """The answers of a step.

    Attributes:
        answers: those that have tokens.
        row_ids: of the rows that they are to.
        used: what they took.
        charged: True where the budget knows of that already.
        metrics: how many there are, how long, and so on.
    """

    answers: Sequence[Answer]
    row_ids: tuple[str, ...]
    used: Usage
    charged: bool = False
    metrics: Mapping[str, float]


async def answers_to(
    snapshot: SamplingClient,
    prompts: Sequence[Prompt],
    *,
    seeds: Sequence[int],
    count: int,
    max_tokens: int,
    stops: Sequence[int],
) -> tuple[list[Answer], int]:
    """Let the student answer each prompt `count` times, at temperature 1. Answers without a token are left out.

    Args:
        snapshot: of the student.
        prompts: what it is asked.
        seeds: one for each prompt.
        count: answers of each.
        max_tokens: longest answer.
        stops: token ids that end one.

    Returns:
        The answers, and how many of them were cut off at `max_tokens`.

    Raises:
        AlgorithmError: the backend gave numbers that can't be right.
    """
    asked = (
        snapshot.sample(
            prompt.student,
            SamplingParams(max_tokens=max_tokens, seed=seed, stop_token_ids=tuple(stops)),
            count,
        )
        for prompt, seed in zip(prompts, seeds, strict=True)
    )
    results = await asyncio.gather(*asked)
    found, truncated = [], 0
    for prompt, result in zip(prompts, results, strict=True):
        shown = prompt.teacher if prompt.teacher != prompt.student else None
        for index, sequence in enumerate(result.sequences):
            if len(sequence.tokens):
                trajectory = _trajectory(prompt, sequence, index, snapshot.version)
                found.append(Answer(trajectory=trajectory, shown=shown))
                truncated += sequence.finish_reason == "length"
    return found, truncated


def _trajectory(prompt: Prompt, sequence: SampledSequence, index: int, version: int) -> Trajectory:
    logprobs = np.asarray(sequence.logprobs, np.float64)
    if logprobs.shape != (len(sequence.tokens),) or not np.isfinite(logprobs).all():
        raise AlgorithmError(
            f"row {prompt.row_id}: the backend sampled {len(sequence.tokens)} tokens with logprobs that don't fit them"
        )
    start = len(prompt.student)
    return Trajectory(
        tokens=np.concatenate((np.asarray(prompt.student, np.int64), np.asarray(sequence.tokens, np.int64))),
        logprobs=np.concatenate((np.zeros(start), logprobs)),
        spans=(Span(start, start + len(logprobs), 0, version),),
        task_id=prompt.row_id,
        sample_index=index,
    )
