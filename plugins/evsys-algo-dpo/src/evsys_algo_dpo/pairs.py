"""From preference rows to pairs of token sequences: a pair is kept or left out as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import DataError
from evsys.types import ChatMessagesRow, Datum, Message
from evsys_algo_dpo.losses import CHOSEN, REJECTED
from evsys_runtime.training.sequences import Sequences, sequences_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Renderer

__all__ = ["RenderedPair", "render_pairs"]


@attrs.frozen(kw_only=True, eq=False)
class RenderedPair:
    """A pair as it is trained; only the messages in which its sides differ have weights."""

    row_id: str
    chosen: Sequences
    rejected: Sequences

    @property
    def sequences(self) -> Sequences:
        """Those of the chosen side, then those of the rejected one."""
        return (*self.chosen, *self.rejected)

    @property
    def token_count(self) -> int:
        """Tokens of all its sequences."""
        return sum(len(tokens) for tokens, _ in self.sequences)

    @property
    def weight(self) -> float:
        """Sum of the weights that predictions have."""
        return float(sum(weights[1:].sum() for _, weights in self.sequences))

    def data(self, place: int, references: Sequence[float] | None = None) -> Iterator[Datum]:
        """Its sequences shifted by one.

        Args:
            place: which pair of the batch it is; a batch over the end of an epoch may have a row twice.
            references: the reference's logprob of each sequence.
        """
        sides = [CHOSEN] * len(self.chosen) + [REJECTED] * len(self.rejected)
        for number, ((tokens, weights), side) in enumerate(zip(self.sequences, sides, strict=True)):
            inputs: dict[str, NDArray[Any]] = {"target_tokens": tokens[1:], "weights": weights[1:]}
            meta: dict[str, Any] = {"row_id": self.row_id, "pair": place, "side": side}
            if references is not None:
                meta["ref_logprob"] = references[number]
            yield Datum(tokens=tokens[:-1], loss_inputs=inputs, meta=meta)


def render_pairs(
    rows: Iterable[ChatMessagesRow],
    renderer: Renderer,
    max_length: int | None,
    dropped: dict[str, int],
) -> Iterator[RenderedPair]:
    """Render rows one by one.

    Args:
        rows: typed rows of the shape `pair`.
        renderer: of the model.
        max_length: longest sequence in tokens; a pair with a longer one is dropped whole.
        dropped: counts pairs left out, by reason.

    Raises:
        DataError: a row is not a pair, or can't be rendered; names the row.
    """
    for number, row in enumerate(rows):
        row_id = row.row_id or str(number)
        if row.rejected is None:
            hint = "give each row `chosen` and `rejected`"
            raise DataError(f"row {row_id} has no rejected answer, so it can't form a pair", hint=hint)
        shared = _common_prefix(row.messages, row.rejected)
        chosen, rejected = (
            sequences_of(renderer, row_id, _unlike(messages, shared), row.tools, "all_assistant")
            for messages in (row.messages, row.rejected)
        )
        reason = _unusable(row, chosen, rejected, max_length)
        if reason is not None:
            dropped[reason] = dropped.get(reason, 0) + 1
            continue
        yield RenderedPair(row_id=row_id, chosen=chosen, rejected=rejected)


def _unusable(
    row: ChatMessagesRow, chosen: Sequences, rejected: Sequences, max_length: int | None
) -> str | None:
    """Why a pair can't be trained on; None where it can."""
    if row.messages == row.rejected or _equal(chosen, rejected):
        return "both sides are equal"
    longest = max((len(tokens) for tokens, _ in (*chosen, *rejected)), default=0)
    if max_length is not None and longest > max_length:
        return f"longer than max_length ({max_length} tokens)"
    if not all(sum(weights[1:].sum() for _, weights in side) > 0 for side in (chosen, rejected)):
        return "one side without a trainable token"
    return None


def _equal(one: Sequences, other: Sequences) -> bool:
    """True where both sides are the same tokens, as they differ in nothing rendered."""
    return len(one) == len(other) and all(
        tokens.tolist() == others.tolist() for (tokens, _), (others, _) in zip(one, other, strict=True)
    )


def _common_prefix(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages both conversations begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _unlike(messages: Sequence[Message], shared: int) -> tuple[Message, ...]:
    """One side's messages; text common to both sides is not a reason to prefer one, so it has no weight."""
    return tuple(
        attrs.evolve(message, weight=0.0) if place < shared and message.role == "assistant" else message
        for place, message in enumerate(messages)
    )
