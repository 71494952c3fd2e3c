"""From rows to training sequences: too long ones dropped, everything counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.types import ChatMessagesRow, Datum, Message
from evsys_runtime.training.sequences import DropReport, Sequences, sequences_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Renderer

__all__ = ["RenderReport", "RenderedRow", "mean_nll", "render_rows"]


@attrs.define(kw_only=True)
class RenderReport(DropReport):
    """The counts of rendering: the rows dropped by reason, and the trained tokens of all tokens.

    `pairs` counts rows with a rejected answer, which isn't used.
    """

    tokens: int = 0
    trained_tokens: int = 0
    pairs: int = 0

    def drop(self, reason: str) -> None:
        """Count an omitted row."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1


@attrs.frozen(kw_only=True, eq=False)
class RenderedRow:
    """A row as it is trained: one sequence, or several where the template rewrites history between turns.

    `sequences` holds tokens and weights of equal length; `weight` is the sum of the weights that predictions have.
    """

    row_id: str
    sequences: Sequences
    weight: float

    @property
    def token_count(self) -> int:
        """Tokens of all its sequences."""
        return sum(len(tokens) for tokens, _ in self.sequences)

    def data(self, scale: float) -> Iterator[Datum]:
        """Its sequences shifted by one, weights multiplied by `scale`."""
        for tokens, weights in self.sequences:
            yield Datum(
                tokens=tokens[:-1],
                loss_inputs={"target_tokens": tokens[1:], "weights": weights[1:] * scale},
                meta={"row_id": self.row_id},
            )


def render_rows(
    rows: Iterable[ChatMessagesRow],
    renderer: Renderer,
    train_on: str,
    max_length: int | None,
    report: RenderReport,
) -> Iterator[RenderedRow]:
    """Render rows one by one.

    Args:
        rows: typed rows.
        renderer: of the model.
        train_on: which tokens have a loss.
        max_length: longest sequence in tokens; a row with a longer one is dropped whole.
        report: counts what was dropped and what is trained.

    Raises:
        DataError: a row can't be rendered; names the row.
    """
    import numpy as np

    for number, row in enumerate(rows):
        row_id = row.row_id or str(number)
        report.pairs += row.rejected is not None
        messages = _trainable_messages(row.messages) if train_on == "custom" else row.messages
        asked = "all_assistant" if train_on == "custom" else train_on
        sequences = sequences_of(renderer, row_id, messages, row.tools, asked)
        longest = max((len(tokens) for tokens, _ in sequences), default=0)
        if max_length is not None and longest > max_length:
            report.drop(f"longer than max_length ({max_length} tokens)")
            continue
        weight = float(sum(weights[1:].sum() for _, weights in sequences))
        if weight <= 0:
            report.drop("without a trainable token")
            continue
        report.tokens += sum(len(tokens) for tokens, _ in sequences)
        report.trained_tokens += sum(int(np.count_nonzero(weights)) for _, weights in sequences)
        yield RenderedRow(row_id=row_id, sequences=sequences, weight=weight)


def _trainable_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Messages of which only those are trained that have a weight."""
    return tuple(
        attrs.evolve(message, weight=0.0)
        if message.role == "assistant" and message.weight is None
        else message
        for message in messages
    )


def mean_nll(data: Sequence[Datum], logprobs: Sequence[NDArray[Any]]) -> float | None:
    """Weighted mean of -logprob over the trained tokens, in nats; None where a subclass gave the data no weights."""
    import numpy as np

    total = weight = 0.0
    for datum, values in zip(data, logprobs, strict=True):
        weights = datum.loss_inputs.get("weights")
        if weights is not None and weights.shape == values.shape:
            active = weights != 0
            total -= float(np.sum(weights[active] * values[active]))
            weight += float(np.sum(weights[active]))
    return total / weight if weight > 0 else None
