"""What the student says: its own answers, with the logprobs that it gave their tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys.errors import AlgorithmError
from evsys.types import SamplingParams
from evsys_runtime.training.trajectories import Span, Trajectory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import SamplingClient
    from evsys.types import SampledSequence

__all__ = ["Answer", "answers_to"]


@attrs.frozen(kw_only=True, eq=False)
class Answer:
    """One answer that has tokens.

    Attributes:
        prompt: which of the prompts it answers, counted in the order in which they were given.
        trajectory: the prompt's tokens and the answer's, and the student's logprobs of the latter.
        truncated: True where it was cut off at `max_tokens`.
    """

    prompt: int
    trajectory: Trajectory
    truncated: bool

    @property
    def start(self) -> int:
        """The place of its first token in the trajectory."""
        return self.trajectory.spans[0].start

    @property
    def tokens(self) -> NDArray[np.int64]:
        """[n], what was said."""
        return self.trajectory.tokens[self.start :]

    @property
    def logprobs(self) -> NDArray[np.float64]:
        """[n], the student's, of what was said."""
        return self.trajectory.logprobs[self.start :]


async def answers_to(
    snapshot: SamplingClient,
    prompts: Sequence[Sequence[int]],
    *,
    names: Sequence[str],
    seeds: Sequence[int],
    count: int,
    max_tokens: int,
    stops: Sequence[int],
) -> list[Answer]:
    """Let the student answer each prompt `count` times, at temperature 1. Answers without a token are left out.

    Args:
        snapshot: of the student.
        prompts: token ids.
        names: of the rows that they are from.
        seeds: one for each prompt.
        count: answers of each.
        max_tokens: longest answer.
        stops: token ids that end one.

    Raises:
        AlgorithmError: the backend gave numbers that can't be right.
    """
    asked = (
        snapshot.sample(
            prompt, SamplingParams(max_tokens=max_tokens, seed=seed, stop_token_ids=tuple(stops)), count
        )
        for prompt, seed in zip(prompts, seeds, strict=True)
    )
    results = await asyncio.gather(*asked)
    found = []
    for place, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        for index, sequence in enumerate(result.sequences):
            if len(sequence.tokens):
                made = _trajectory(prompt, sequence, names[place], index, snapshot.version)
                found.append(
                    Answer(prompt=place, trajectory=made, truncated=sequence.finish_reason == "length")
                )
    return found


def _trajectory(
    prompt: Sequence[int], sequence: SampledSequence, name: str, index: int, version: int
) -> Trajectory:
    logprobs = np.asarray(sequence.logprobs, np.float64)
    if logprobs.shape != (len(sequence.tokens),) or not np.isfinite(logprobs).all():
        raise AlgorithmError(
            f"row {name}: the backend sampled {len(sequence.tokens)} tokens with logprobs that don't fit them"
        )
    start = len(prompt)
    return Trajectory(
        tokens=np.concatenate((np.asarray(prompt, np.int64), np.asarray(sequence.tokens, np.int64))),
        logprobs=np.concatenate((np.zeros(start), logprobs)),
        spans=(Span(start, start + len(logprobs), 0, version),),
        task_id=name,
        sample_index=index,
    )
