"""Rows kept out of the training, and how well the model says their answers: per token, and per byte of text."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import batched
from typing import TYPE_CHECKING

import numpy as np

from evsys_algo_sft.sequences import RenderedRow
from evsys_runtime.training.sequences import weighted_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Tokenizer, TrainingClient
    from evsys.types import ChatMessagesRow

__all__ = ["MOST_SEARCHED", "HeldOut", "copies_trained", "holdout_mask", "number_kept_out"]

MOST_SEARCHED = 50_000
"""With more rows than this nothing is searched for copies of held-out rows; it would delay the first step by
seconds.
"""


def number_kept_out(rows: int, wanted: float) -> int:
    """How many of so many rows are kept out: `wanted` of them, or below 1 that share."""
    return min(rows, round(wanted * rows) if wanted < 1 else round(wanted))


def holdout_mask(contents: Sequence[Hashable], wanted: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are kept out, the same ones for every run with this seed.

    Rows of equal content are kept out together or not at all. As many are kept out as wanted, or as near to it as
    copies allow.

    Args:
        contents: of each row what it says; equal where rows say the same.
        wanted: how many rows, or below 1 which share.
        seed: of the choice.

    Returns:
        True for each held-out row, shape (rows,).
    """
    chosen = np.zeros(len(contents), dtype=np.bool_)
    groups: dict[Hashable, list[int]] = {}
    for place, content in enumerate(contents):
        groups.setdefault(content, []).append(place)
    in_order = [*groups.values()]
    number, count = number_kept_out(len(contents), wanted), 0
    for group in np.random.default_rng(seed).permutation(len(in_order)).tolist() if wanted else ():
        size = len(in_order[group])
        if count + size / 2 <= number:
            chosen[in_order[group]] = True
            count += size
    return chosen


def copies_trained(held_out: Iterable[ChatMessagesRow], trained: Iterable[ChatMessagesRow]) -> int:
    """How many rows kept out are nearly equal to a trained one, as `evsys data check` compares tasks with rows."""
    from evsys_runtime.data.near_texts import NearTexts, outline
    from evsys_runtime.data.row_texts import row_texts
    from evsys_runtime.data.words import fold, words_of

    def said(row: ChatMessagesRow) -> tuple[str, list[str]]:
        text = "\n".join(fold(text) for _, text in row_texts(row))
        return text, words_of(text)

    search = NearTexts(outline(*said(row)) for row in held_out)
    return len({number for row in trained for number in search.find(*said(row))})


class HeldOut:
    """Measures rows that nothing was trained on.

    Args:
        rows: rendered as those trained.
        tokenizer: of the model; it shows how many bytes of text the trained tokens are.
    """

    def __init__(self, rows: Iterable[RenderedRow], tokenizer: Tokenizer) -> None:
        self.rows = rows
        self._tokenizer = tokenizer
        self._sums: tuple[float, float] | None = None

    async def measure(self, client: TrainingClient, rows_at_once: int) -> Mapping[str, float]:
        """`held_out_nll`, nats per trained token, and `held_out_bits_per_byte`, which compares models with different
        tokenizers: the bits that all trained tokens take, end tokens included, by the bytes of their text. Empty where none
        of the rows can be trained.
        """
        nats = weight = text_bytes = 0.0
        for chunk in batched(self.rows, rows_at_once):
            data = [datum for row in chunk for datum in row.data(1.0)]
            forward = await client.forward(data)
            for datum, logprobs in zip(data, forward.logprobs, strict=True):
                nats -= weighted_sum(datum, logprobs)
            if self._sums is None:
                for row in chunk:
                    weight += row.weight
                    text_bytes += _text_bytes(row, self._tokenizer)
        if self._sums is None:
            self._sums = weight, text_bytes
        weight, text_bytes = self._sums
        found = {"held_out_nll": nats / weight} if weight else {}
        if text_bytes:
            found["held_out_bits_per_byte"] = nats / math.log(2) / text_bytes
        return found


def _text_bytes(row: RenderedRow, tokenizer: Tokenizer) -> float:
    """Bytes of the trained text, without the tokens that end a turn; weighted as their tokens are."""
    ends = np.array(sorted(tokenizer.eos_token_ids), dtype=np.int64)
    total = 0.0
    for tokens, weights in row.sequences:
        for weight in np.unique(weights[weights != 0]):
            said = tokens[(weights == weight) & ~np.isin(tokens, ends)]
            total += float(weight) * len(tokenizer.decode(said.tolist()).encode("utf-8"))
    return total
