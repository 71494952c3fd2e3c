"""From a rollout to what is trained: the sampler's own tokens and logprobs, in as few sequences as its turns allow.

Nothing is tokenised here. A turn continues with a sequence where its prompt begins with all of that sequence, token for token;
else it begins a new one: a template rewrote the history, the agent dropped some of it, or talks to the model about two things
in turn. Each sampled token is in exactly one sequence, and what others said (prompts, users, tools) is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import attrs
import numpy as np

from evsys.errors import RolloutError
from evsys.types import Datum, Rollout, Turn
from evsys_runtime.serving.messages import LEAST_LOGPROB

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Reason", "RejectedRolloutError", "Span", "Trajectory", "to_data", "to_datum", "trajectories"]

Reason = Literal[
    "no_turns",
    "token_ids_refused",
    "no_prompt",
    "no_tokens",
    "no_logprobs",
    "length_mismatch",
    "bad_token",
    "bad_logprob",
]
"""Why a rollout can't be trained on:

* `no_turns`: the agent never asked the model, or no one saw the answers
* `token_ids_refused`: the agent left token ids of its own that can't be right
* `no_prompt`, `no_tokens`, `no_logprobs`: a turn lacks one of these, or has an empty one
* `length_mismatch`: a turn has more or fewer logprobs than tokens
* `bad_token`, `bad_logprob`: no whole number from 0; no finite number
"""


class RejectedRolloutError(RolloutError):
    """A rollout that can't be trained on. Count `reason`, and leave the rollout out."""

    def __init__(self, reason: Reason, message: str, **facts: Any) -> None:
        super().__init__(message, reason=reason, **facts)
        self.reason: Reason = reason


class Span(NamedTuple):
    """The tokens of one turn: places `start` to `end` of its sequence, its number in `Rollout.turns`, and the
    optimiser steps behind the weights that sampled it, None if unknown.
    """

    start: int
    end: int
    turn: int
    version: int | None


@attrs.frozen(kw_only=True, eq=False)
class Trajectory:
    """One sequence of a rollout.

    Attributes:
        tokens: [N], prompts and everything between the turns included.
        logprobs: [N], the sampler's, of the tokens that it sampled; 0 where `mask` is False, which no one may read.
        spans: what is the model's own, in order.
        task_id: of the rollout.
        sample_index: of the rollout.
        row: which of the rollout's sequences this is, counted from 0.
    """

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    spans: tuple[Span, ...]
    task_id: str = ""
    sample_index: int = 0
    row: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def sampled(self) -> int:
        """How many tokens are the model's own."""
        return sum(span.end - span.start for span in self.spans)

    @property
    def oldest_version(self) -> int | None:
        """The version of the oldest weights that said something here; None where one isn't known."""
        oldest = self.spans[0].version
        for span in self.spans[1:]:
            if oldest is None or span.version is None:
                return None
            oldest = min(oldest, span.version)
        return oldest

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """[N], True for the model's own tokens."""
        mask = np.zeros(len(self.tokens), bool)
        for span in self.spans:
            mask[span.start : span.end] = True
        return mask

    @cached_property
    def versions(self) -> NDArray[np.int64]:
        """[N], optimiser steps behind the weights that sampled each token; -1 where it wasn't sampled, or no one knows."""
        return self._spread([-1 if span.version is None else span.version for span in self.spans])

    @cached_property
    def turns(self) -> NDArray[np.int64]:
        """[N], the number of the turn that each token was said in; -1 where it wasn't sampled."""
        return self._spread([span.turn for span in self.spans])

    def _spread(self, values: Sequence[int]) -> NDArray[np.int64]:
        whole = np.full(len(self.tokens), -1, np.int64)
        for span, value in zip(self.spans, values, strict=True):
            whole[span.start : span.end] = value
        return whole


def trajectories(rollout: Rollout) -> list[Trajectory]:
    """The sequences of a rollout, in the order in which they begin. Each has tokens of the model's own.

    Raises:
        RejectedRolloutError: a turn lacks what training needs, or has numbers that can't be right. All of the rollout is
            rejected, since what came after that turn depends on it.
    """
    if not rollout.turns:
        complaint = rollout.metadata.get("complaint")
        if complaint is not None:
            raise RejectedRolloutError("token_ids_refused", str(complaint))
        raise RejectedRolloutError("no_turns", "no turn of the model is on record")
    rows: list[_Row] = []
    for number, turn in enumerate(rollout.turns):
        prompt, tokens, logprobs = _check_turn(turn, number)
        row = _continue_row(rows, prompt)
        if row is None:
            row = _Row()
            rows.append(row)
        version = turn.policy_version if turn.policy_version is not None else rollout.policy_version
        row.add(prompt, tokens, logprobs, number, version)
    return [row.trajectory(rollout, place) for place, row in enumerate(rows)]


def to_datum(trajectory: Trajectory, advantages: float | NDArray[Any]) -> Datum:
    """A sequence as training data: entry i of each loss input belongs to the prediction made after `tokens[i]`.

    Args:
        trajectory: N tokens.
        advantages: one number for all of it, or [N], one for each token of `trajectory`; where the mask is False
            they count for nothing.

    Returns:
        N - 1 positions with `target_tokens`, `logprobs` (the sampler's), `advantages`, and the mask as `weights`. Losses are
        sums: divide `advantages` or `weights` by the global denominator.
    """
    tokens = trajectory.tokens
    weights = np.zeros(len(tokens) - 1)
    for span in trajectory.spans:
        weights[span.start - 1 : span.end - 1] = 1.0
    if isinstance(advantages, float | int | np.floating):
        values = weights * advantages
    elif np.shape(advantages) == tokens.shape:
        values = np.where(weights != 0, np.asarray(advantages, np.float64)[1:], 0.0)
    else:
        shape = np.shape(advantages)
        raise ValueError(f"advantages have shape {shape}, the trajectory has {len(trajectory)} tokens")
    return Datum(
        tokens=tokens[:-1],
        loss_inputs={
            "target_tokens": tokens[1:],
            "weights": weights,
            "logprobs": trajectory.logprobs[1:],
            "advantages": values,
        },
        meta=_meta(trajectory),
    )


def to_data(rows: Sequence[Trajectory], advantages: Sequence[float]) -> list[Datum]:
    """Many sequences as training data, each with one advantage: what `to_datum` gives of each, in float32.

    Arrays of all rows are made at once and cut: a step has hundreds of rows, and numpy takes about as long for a short array
    as for a long one.
    """
    if not rows:
        return []
    ends = np.cumsum([len(row.tokens) - 1 for row in rows])
    offsets = [0, *ends.tolist()]
    weights = np.zeros(offsets[-1], np.float32)
    for start, row in zip(offsets, rows, strict=False):
        for span in row.spans:
            weights[start + span.start - 1 : start + span.end - 1] = 1.0
    values = weights * np.repeat(np.asarray(advantages, np.float64).astype(np.float32), np.diff(offsets))
    logprobs = np.concatenate([row.logprobs[1:] for row in rows]).astype(np.float32)
    return [
        Datum(
            tokens=row.tokens[:-1],
            loss_inputs={
                "target_tokens": row.tokens[1:],
                "weights": weights[start:end],
                "logprobs": logprobs[start:end],
                "advantages": values[start:end],
            },
            meta=_meta(row),
        )
        for row, start, end in zip(rows, offsets, offsets[1:], strict=False)
    ]


def _meta(row: Trajectory) -> dict[str, Any]:
    return {
        "group": row.task_id,
        "rollout": f"{row.task_id}/{row.sample_index}",
        "row": row.row,
        "turns": tuple([span.turn for span in row.spans]),  # a generator would take twice as long
        "policy_version": row.oldest_version,
    }


class _Row:
    """A sequence in the making."""

    def __init__(self) -> None:
        self.tokens: NDArray[np.int64] = np.zeros(0, np.int64)
        self._parts: list[tuple[Span, NDArray[np.float64]]] = []

    def continued_by(self, prompt: NDArray[np.int64]) -> bool:
        length = len(self.tokens)
        return len(prompt) >= length and bool((prompt[:length] == self.tokens).all())

    def add(
        self,
        prompt: NDArray[np.int64],
        tokens: NDArray[np.int64],
        logprobs: NDArray[np.float64],
        number: int,
        version: int | None,
    ) -> None:
        self.tokens = np.concatenate((prompt, tokens))
        self._parts.append((Span(len(prompt), len(self.tokens), number, version), logprobs))

    def trajectory(self, rollout: Rollout, place: int) -> Trajectory:
        logprobs = np.zeros(len(self.tokens))
        for span, values in self._parts:
            logprobs[span.start : span.end] = values
        return Trajectory(
            tokens=self.tokens,
            logprobs=logprobs,
            spans=tuple(span for span, _ in self._parts),
            task_id=rollout.task_id,
            sample_index=rollout.sample_index,
            row=place,
        )


def _continue_row(rows: Sequence[_Row], prompt: NDArray[np.int64]) -> _Row | None:
    """The row that a prompt continues with: of several the longest, of equal ones the last."""
    found = [row for row in reversed(rows) if row.continued_by(prompt)]
    return max(found, key=lambda row: len(row.tokens), default=None)


def _check_turn(turn: Turn, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Prompt, tokens and logprobs of a turn."""
    prompt = _ids(turn.prompt_tokens, number, "no_prompt", "prompt")
    tokens = _ids(turn.tokens, number, "no_tokens", "tokens")
    if turn.logprobs is None:
        raise RejectedRolloutError("no_logprobs", f"turn {number} has no logprobs", turn=number)
    if len(turn.logprobs) != len(tokens):
        message = f"turn {number} has {len(tokens)} tokens and {len(turn.logprobs)} logprobs"
        raise RejectedRolloutError("length_mismatch", message, turn=number)
    try:
        logprobs = np.asarray(turn.logprobs, np.float64)
    except (TypeError, ValueError) as exc:
        raise _bad_logprob(number) from exc
    if logprobs.ndim != 1 or not np.isfinite(logprobs).all() or logprobs.min() <= LEAST_LOGPROB:
        raise _bad_logprob(number)
    return prompt, tokens, logprobs


def _ids(
    values: Sequence[int] | None, number: int, absent: Literal["no_prompt", "no_tokens"], what: str
) -> NDArray[np.int64]:
    if values is None or len(values) == 0:
        raise RejectedRolloutError(absent, f"turn {number} has no {what}", turn=number)
    try:
        ids = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        ids = np.zeros(0)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids) or ids.min() < 0:
        message = f"the {what} of turn {number} are not a list of token ids"
        raise RejectedRolloutError("bad_token", message, turn=number)
    return ids.astype(np.int64, copy=False)


def _bad_logprob(number: int) -> RejectedRolloutError:
    return RejectedRolloutError(
        "bad_logprob", f"turn {number} has a logprob that is not a finite number", turn=number
    )
