"""From rows to training sequences: too long ones dropped, everything counted, tokens made again when they are needed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import attrs

from evsys.types import ChatMessagesRow, Datum, Message
from evsys_runtime.training.sequences import Sequences, sequences_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Dataset, Renderer

__all__ = ["RenderReport", "RenderedRow", "TrainableRows", "mean_nll", "render_rows"]

MAX_TOKENS_KEPT = 2_000_000
"""Tokens that are kept rendered, 12 bytes each."""


@attrs.define(kw_only=True)
class RenderReport:
    """What became of the rows: how many were dropped and why, and how many tokens are trained of how many.

    `pairs` counts rows with a rejected answer, which isn't used.
    """

    dropped: dict[str, int] = attrs.field(factory=dict)
    tokens: int = 0
    trained_tokens: int = 0
    pairs: int = 0

    def drop(self, reason: str) -> None:
        """Count a row that is left out."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1


@attrs.frozen(kw_only=True, eq=False)
class RenderedRow:
    """A row as it is trained: one sequence, or several where the template rewrites history between turns.

    `sequences` holds tokens and weights of equal length; `weight` is the sum of the weights that predictions have.
    """

    row_id: str
    sequences: Sequences
    weight: float

    def data(self, scale: float) -> Iterator[Datum]:
        """Its sequences shifted by one, weights multiplied by `scale`."""
        for tokens, weights in self.sequences:
            yield Datum(
                tokens=tokens[:-1],
                loss_inputs={"target_tokens": tokens[1:], "weights": weights[1:] * scale},
                meta={"row_id": self.row_id},
            )


class TrainableRows(Sequence[RenderedRow]):
    """The rows that can be trained, rendered when they are read: memory doesn't grow with their tokens.

    The first `MAX_TOKENS_KEPT` tokens are kept, so that small data are rendered once.

    Args:
        rows: all rows.
        render: gives those of some rows that can be trained, rendered, and counts in a report.
        numbers: which rows; none until they are `chosen`.
        kept: rendered rows by their number.
    """

    def __init__(
        self,
        rows: Dataset,
        render: Callable[[Iterable[ChatMessagesRow], RenderReport], Iterator[RenderedRow]],
        numbers: Iterable[int] = (),
        kept: dict[int, RenderedRow] | None = None,
    ) -> None:
        self._rows = rows
        self._render = render
        self._numbers = array("q", numbers)
        self._kept = {} if kept is None else kept

    def find(self, report: RenderReport) -> Iterator[int]:
        """The numbers of the rows that can be trained, in order; renders each row.

        Args:
            report: counts what was dropped and what is trained.

        Raises:
            DataError: a row can't be rendered; names the row.
        """
        tokens = 0
        for number in range(len(self._rows)):
            rendered = self._rendered(number, report)
            if rendered is None:
                continue
            tokens += sum(len(ids) for ids, _ in rendered.sequences)
            if tokens <= MAX_TOKENS_KEPT:
                self._kept[number] = rendered
            yield number

    def chosen(self, numbers: Iterable[int]) -> TrainableRows:
        """The rows with these numbers."""
        return TrainableRows(self._rows, self._render, numbers, self._kept)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> RenderedRow: ...
    @overload
    def __getitem__(self, place: slice) -> TrainableRows: ...
    def __getitem__(self, place: int | slice) -> RenderedRow | TrainableRows:
        if isinstance(place, slice):
            return self.chosen(self._numbers[place])
        number = self._numbers[place]
        rendered = self._kept.get(number) or self._rendered(number, RenderReport())
        if rendered is None:
            raise RuntimeError(f"row {number} could be trained when it was rendered first, and can't now")
        return rendered

    def _rendered(self, number: int, report: RenderReport) -> RenderedRow | None:
        row: ChatMessagesRow = self._rows[number]
        named = row if row.row_id else attrs.evolve(row, row_id=str(number))
        return next(iter(self._render([named], report)), None)


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
        messages = _as_weighted(row.messages) if train_on == "custom" else row.messages
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


def _as_weighted(messages: Sequence[Message]) -> tuple[Message, ...]:
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
