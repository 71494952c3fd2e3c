"""Packs sequences as prefix tries, so that shared beginnings are computed once.

Sequences are sorted; each reuses the rows of the longest prefix that it shares with the one before. Rows come out
in pre-order of the trie: everything below a row follows it without a gap. Attention then runs over *blocks* of
consecutive rows, whose keys are the ancestors of the block's first row and the block itself; in pre-order no other
row outside the block can be an ancestor of a row inside. The beginning of a sequence may have been computed before: its
keys come from elsewhere, and only what follows gets rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_backend_local.engine.arrays import Array

IntArray = NDArray[np.int64]

#: Additive mask of a forbidden key. Finite, so that a difference of two masked scores isn't NaN.
MASKED = -1e30


@attrs.frozen(kw_only=True)
class Block:
    """Query rows ``[start, end)``; keys are those of ``past`` tokens, the rows ``outside`` (before ``start``), the block itself.

    ``mask`` is additive, ``[end - start, past + len(outside) + end - start]``. The past is the beginning of sequence
    ``member`` of the caller's list, and of every other sequence through the block.
    """

    start: int
    end: int
    outside: IntArray
    mask: Array
    member: int
    past: int = 0

    @property
    def keys(self) -> int:
        """Number of keys."""
        return self.past + len(self.outside) + self.end - self.start


@attrs.frozen(kw_only=True)
class Pack:
    """Rows computed together.

    Attributes:
        members: indices of the packed sequences in the caller's list, in sorted order.
        tokens: ``[rows]`` token ids.
        positions: ``[rows]`` depth in the trie, which is the position in every sequence through the row.
        rows_of: for each member the row of each of its tokens after its past.
        blocks: how attention walks over the rows.
    """

    members: tuple[int, ...]
    tokens: IntArray
    positions: IntArray
    rows_of: tuple[IntArray, ...]
    blocks: tuple[Block, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.tokens)


@attrs.define
class _Segment:
    """New rows ``[start, start + length)`` of sequence ``member``, below the rows ``path``, below ``past`` tokens.

    ``family`` is a number that segments have in common if their pasts are the same tokens.
    """

    start: int
    length: int
    path: IntArray
    member: int
    past: int
    family: int


def sort_key(tokens: IntArray) -> bytes:
    """Bytes that sort like the token sequence (big-endian keeps the order)."""
    return np.asarray(tokens).astype(">u4").tobytes()


def common_prefix(left: IntArray, right: IntArray) -> int:
    """Length of the longest common prefix."""
    n = min(len(left), len(right))
    different = np.flatnonzero(left[:n] != right[:n])
    return int(different[0]) if len(different) else n


class _Builder:
    """Collects sorted sequences into one pack."""

    def __init__(self) -> None:
        self.members: list[int] = []
        self.rows_of: list[IntArray] = []
        self.tokens: list[IntArray] = []
        self.positions: list[IntArray] = []
        self.segments: list[_Segment] = []
        self.rows = 0
        self._family = 0
        self._past: IntArray | None = None

    def add(self, index: int, tokens: IntArray, shared: int, past: int) -> None:
        """Add what follows the first ``past`` tokens; ``shared`` counts from there."""
        if self._past is None or not np.array_equal(self._past, tokens[:past]):
            self._family += 1
            self._past = tokens[:past]
        tokens = tokens[past:]
        fresh = len(tokens) - shared
        path = self.rows_of[-1][:shared] if shared else np.empty(0, np.int64)
        new_rows = np.arange(self.rows, self.rows + fresh)
        self.rows_of.append(np.concatenate([path, new_rows]))
        self.members.append(index)
        if fresh:
            self.tokens.append(tokens[shared:])
            self.positions.append(past + np.arange(shared, len(tokens)))
            self.segments.append(_Segment(self.rows, fresh, path, index, past, self._family))
        self.rows += fresh

    def finish(self, block_rows: int, dtype: np.dtype[np.generic], window: int | None) -> Pack:
        return Pack(
            members=tuple(self.members),
            tokens=np.concatenate(self.tokens),
            positions=np.concatenate(self.positions),
            rows_of=tuple(self.rows_of),
            blocks=tuple(_blocks(self.segments, block_rows, dtype, window)),
        )


def _split(segments: Sequence[_Segment], block_rows: int) -> list[_Segment]:
    """Cut segments longer than ``block_rows``; the cut-off part hangs below the first part."""
    parts: list[_Segment] = []
    for segment in segments:
        pieces = -(-segment.length // block_rows)
        step = -(-segment.length // pieces)
        for offset in range(0, segment.length, step):
            path = np.concatenate([segment.path, np.arange(segment.start, segment.start + offset)])
            parts.append(
                attrs.evolve(
                    segment,
                    start=segment.start + offset,
                    length=min(step, segment.length - offset),
                    path=path,
                )
            )
    return parts


def _blocks(
    segments: Sequence[_Segment], block_rows: int, dtype: np.dtype[np.generic], window: int | None
) -> list[Block]:
    blocks: list[Block] = []
    group: list[_Segment] = []
    held = 0
    for segment in _split(segments, block_rows):
        if group and (held + segment.length > block_rows or segment.family != group[0].family):
            blocks.append(_block(group, dtype, window))
            group, held = [], 0
        group.append(segment)
        held += segment.length
    if group:
        blocks.append(_block(group, dtype, window))
    return blocks


def _block(group: Sequence[_Segment], dtype: np.dtype[np.generic], window: int | None) -> Block:
    start, past = group[0].start, group[0].past
    end = group[-1].start + group[-1].length
    # A row's path has one row a position, so what the window hides from the whole block is a beginning of it.
    hidden = 0 if window is None else max(0, min(len(segment.path) for segment in group) - window + 1)
    outside = group[0].path[hidden:]
    width = past + len(outside)
    mask = np.full((end - start, width + end - start), MASKED, dtype)
    mask[:, :past] = 0
    for segment in group:
        first = segment.start - start
        last = first + segment.length
        before = int(np.searchsorted(segment.path, start))
        mask[first:last, past : past + max(before - hidden, 0)] = 0
        mask[first:last, width + segment.path[before:] - start] = 0
        mask[first:last, width + first : width + last] = causal_mask(segment.length, dtype)
    if window is not None:
        own = [len(segment.path) + np.arange(segment.length) for segment in group]
        queries = np.concatenate(own)
        keys = np.concatenate([np.arange(past) - past, hidden + np.arange(len(outside)), queries])
        mask[queries[:, None] - keys >= window] = MASKED
    return Block(start=start, end=end, outside=outside, mask=mask, member=group[0].member, past=past)


_CAUSAL: dict[np.dtype[np.generic], Array] = {}


def causal_mask(size: int, dtype: np.dtype[np.generic]) -> Array:
    """Additive mask ``[size, size]`` that lets row i see keys up to i."""
    table = _CAUSAL.get(dtype)
    if table is None or len(table) < size:
        table = np.triu(np.full((max(size, 128), max(size, 128)), MASKED, dtype), 1)
        _CAUSAL[dtype] = table
    return table[:size, :size]


def pack_sequences(
    sequences: Sequence[IntArray],
    *,
    max_rows: int,
    streams: int,
    block_rows: int,
    dtype: np.dtype[np.generic],
    window: int | None = None,
    share: bool = True,
    past: Sequence[int] | None = None,
) -> list[Pack]:
    """Pack non-empty token sequences.

    Args:
        sequences: token ids, each with at least one entry.
        max_rows: rows a pack should not exceed; one longer sequence still gets a pack of its own.
        streams: workers that will share the packs; their number is rounded to a multiple of it, so that all
            have equal work.
        block_rows: query rows of an attention block.
        dtype: type of the masks.
        window: a token sees itself and the ``window - 1`` before it; None sees all.
        share: reuse common prefixes. Off only to compare with.
        past: tokens at the beginning of each sequence whose keys and values exist already; fewer than it has.

    Returns:
        Packs that together hold every sequence once.
    """
    if not sequences:
        return []
    done = [0] * len(sequences) if past is None else list(past)
    keys = [(done[index], sort_key(sequence)) for index, sequence in enumerate(sequences)]
    order = sorted(range(len(sequences)), key=keys.__getitem__)
    shared = [0] * len(order)
    if share:
        for place, (before, index) in enumerate(pairwise(order), start=1):
            if done[before] == done[index]:
                common = common_prefix(sequences[before], sequences[index])
                shared[place] = max(common - done[index], 0)
    total = sum(len(sequences[index]) - done[index] - shared[place] for place, index in enumerate(order))
    packs = -(-total // max_rows)
    packs = -(-packs // streams) * streams
    capacity = min(max_rows, max(-(-total // packs), 16))
    finished: list[_Builder] = []
    builder = _Builder()
    for place, index in enumerate(order):
        tokens = sequences[index]
        fresh = len(tokens) - done[index] - shared[place]
        # Close where the bound is nearer than with this sequence inside, so that packs come out even.
        even = len(finished) + 1 < packs and builder.rows + fresh // 2 > capacity
        if builder.members and (even or builder.rows + fresh > max_rows):
            finished.append(builder)
            builder = _Builder()
        builder.add(index, tokens, shared[place] if builder.members else 0, done[index])
    finished.append(builder)
    return [builder.finish(block_rows, dtype, window) for builder in finished]
