"""From answers, and what a teacher thinks of them, to training data: one datum a sequence, only what was said with a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys.types import Datum, TrainingBatch
from evsys_runtime import to_datum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys_algo_distill.answers import Answer
    from evsys_algo_distill.teaching import Opinion
    from evsys_runtime.training.comparable import Comparable

__all__ = ["policy_batch", "policy_data", "reverse_kl", "target_datum"]


def policy_batch(answers: Sequence[Answer], told: Comparable, coefficient: float = 1.0) -> TrainingBatch:
    """`policy_data` of the teacher's advantages, with its loss."""
    return TrainingBatch(
        data=policy_data(answers, told.logprobs, coefficient),
        loss_fn="importance_sampling",
        metrics={"reverse_kl": reverse_kl(answers, told.logprobs), **told.metrics("teacher")},
    )


def policy_data(
    answers: Sequence[Answer], teacher: Sequence[NDArray[np.float64]], coefficient: float = 1.0
) -> list[Datum]:
    """Answers with `coefficient (log teacher - log student) / n` as the advantage of each of their n tokens."""
    count = sum(answer.trajectory.sampled for answer in answers)
    found = []
    for answer, theirs in zip(answers, teacher, strict=True):
        advantages = np.zeros(len(answer.trajectory))
        advantages[answer.trajectory.mask] = coefficient * (theirs - answer.logprobs) / count
        found.append(to_datum(answer.trajectory, advantages))
    return found


def target_datum(answer: Answer, opinion: Opinion, count: int, *, mixed: bool) -> Datum:
    """An answer with the teacher's likeliest tokens as targets, [N, K], and their probabilities over `count` as
    weights.

    Mixed, [N, 1 + K] with the token said in front.
    """
    trajectory = answer.trajectory
    tokens, said = trajectory.tokens[:-1], trajectory.mask[1:]
    width = opinion.tokens.shape[1] + int(mixed)
    targets = np.repeat(trajectory.tokens[1:, None], width, axis=1)
    weights = np.zeros(targets.shape)
    targets[said, int(mixed) :] = opinion.tokens
    weights[said, int(mixed) :] = opinion.probabilities / count
    inputs: dict[str, NDArray[Any]] = {"target_tokens": targets, "weights": weights}
    if mixed:
        weights[said, 0] = 1.0 / count
        inputs["logprobs"] = trajectory.logprobs[1:]
        inputs["advantages"] = np.zeros(len(tokens))
        inputs["advantages"][said] = opinion.logprobs - answer.logprobs
    meta = {"row_id": trajectory.task_id, "answer_tokens": trajectory.sampled}
    return Datum(tokens=tokens, loss_inputs=inputs, meta=meta)


def reverse_kl(answers: Sequence[Answer], teacher: Sequence[NDArray[np.float64]]) -> float:
    """KL(student || teacher) by the tokens said, nats per token."""
    total = sum(
        float((answer.logprobs - theirs).sum()) for answer, theirs in zip(answers, teacher, strict=True)
    )
    return total / sum(len(theirs) for theirs in teacher)
