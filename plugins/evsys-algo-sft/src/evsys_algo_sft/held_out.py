"""Rows that are kept out of the training, and how well the model says their answers: per token, and per byte of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import batched
from typing import TYPE_CHECKING

from evsys_algo_sft.sequences import RenderedRow
from evsys_runtime.training.sequences import weighted_sum

if TYPE_CHECKING:
    from evsys.protocols import Tokenizer, TrainingClient

__all__ = ["HeldOut", "kept_out"]


def kept_out(rows: int, wanted: float, seed: int) -> frozenset[int]:
    """Numbers of the rows that are kept out, the same for every run with this seed.

    Args:
        rows: how many there are.
        wanted: how many of them, or below 1 which share.
        seed: of the choice.
    """
    import numpy as np

    count = round(wanted * rows) if wanted < 1 else round(wanted)
    return (
        frozenset(np.random.default_rng(seed).permutation(rows)[:count].tolist()) if wanted else frozenset()
    )


class HeldOut:
    """Measures rows that nothing was trained on.

    Args:
        rows: rendered as those that are trained.
        tokenizer: of the model; it tells how many bytes of text the trained tokens are.
    """

    def __init__(self, rows: Sequence[RenderedRow], tokenizer: Tokenizer) -> None:
        self.rows = rows
        self._bytes = sum(_text_bytes(row, tokenizer) for row in rows)
        self._weight = sum(row.weight for row in rows)

    async def measure(self, client: TrainingClient, rows_at_once: int) -> Mapping[str, float]:
        """`held_out_nll`, nats per trained token, and `held_out_bits_per_byte`, which compares models with different
        tokenizers: the bits that all trained tokens take, end tokens included, by the bytes of their text.
        """
        nats = 0.0
        for chunk in batched(self.rows, rows_at_once):
            data = [datum for row in chunk for datum in row.data(1.0)]
            forward = await client.forward(data)
            for datum, logprobs in zip(data, forward.logprobs, strict=True):
                nats -= weighted_sum(datum, logprobs)
        found = {"held_out_nll": nats / self._weight}
        if self._bytes:
            found["held_out_bits_per_byte"] = nats / math.log(2) / self._bytes
        return found


def _text_bytes(row: RenderedRow, tokenizer: Tokenizer) -> float:
    """Bytes of the text that is trained, without the tokens that end a turn; weighted as their tokens are."""
    import numpy as np

    ends = np.array(sorted(tokenizer.eos_token_ids), dtype=np.int64)
    total = 0.0
    for tokens, weights in row.sequences:
        for weight in np.unique(weights[weights != 0]):
            said = tokens[(weights == weight) & ~np.isin(tokens, ends)]
            total += float(weight) * len(tokenizer.decode(said.tolist()).encode("utf-8"))
    return total
