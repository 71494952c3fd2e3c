"""`split`: one named part of the rows; the parts of one split never overlap."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime.data.json_rows import decode_row
from evsys_std.transforms.columns import MISSING, Row, content_of, getter
from evsys_std.transforms.shuffle import permutation, stored

__all__ = ["Split"]


class Split:
    """Keeps the rows of one part, in their order.

    `method: hash` puts each row into a part by what it says (`key`, or the whole row), so a row stays in its part when
    others come or go, and rows with one key stay together; the sizes are met on average. `method: ratio` draws the
    parts, so the sizes are exact, and any change of the rows may move them all.

    The seed does not follow the run's seed: what one run trains on and another is tested on must not overlap.
    """

    name: ClassVar[str] = "split"
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {"parts": {"train": 0.75, "test": 0.25}, "keep": "train"}
    }

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `split`."""

        parts: dict[str, float] = option(..., "name: share of the rows; the shares make 1", min_len=1)
        keep: str = option(..., "the part to keep")
        method: Literal["hash", "ratio"] = option(
            "hash", "by the row's content, one row at a time, or drawn from all rows"
        )
        key: str | None = option(
            None, "for hash: the column that decides; rows that lack it go by their content"
        )
        seed: int = option(0, "another seed gives other parts")

    def __init__(self, **fields: Any) -> None:
        self.config = config = self.Config(**fields)
        self.dropped: Counter[str] = Counter()
        if any(share <= 0 for share in config.parts.values()):
            raise ValueError("every share in `parts` must be above 0")
        if abs(sum(config.parts.values()) - 1) > 1e-6:
            raise ValueError(f"the shares in `parts` must make 1, they make {sum(config.parts.values()):g}")
        if config.keep not in config.parts:
            raise ValueError(f"`keep` names no part; the parts are {', '.join(config.parts)}")
        if config.method == "ratio" and config.key is not None:
            raise ValueError("`key` needs `method: hash`")

    @property
    def streaming(self) -> bool:
        """True by content: each row is judged alone."""
        return self.config.method == "hash"

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        self.dropped = Counter()
        return self._by_hash(rows) if self.config.method == "hash" else self._by_ratio(rows)

    def _by_hash(self, rows: Iterable[Row]) -> Iterator[Row]:
        get = getter(self.config.key) if self.config.key is not None else None
        ends = list(accumulate(self.config.parts.values()))
        names = list(self.config.parts)
        salt = f"evsys-split/1:{self.config.seed}:".encode()
        for row in rows:
            value = get(row) if get is not None else MISSING
            content = content_of(dict(row) if value is MISSING else value)
            point = int.from_bytes(hashlib.blake2b(salt + content, digest_size=8).digest(), "big") / 2**64
            part = next((name for name, end in zip(names, ends, strict=True) if point < end), names[-1])
            if part == self.config.keep:
                yield row
            else:
                self.dropped[f"in part {part!r}"] += 1

    def _by_ratio(self, rows: Iterable[Row]) -> Iterator[Row]:
        store = stored(rows)
        try:
            count = len(store)
            cuts = [0, *(round(end * count) for end in accumulate(self.config.parts.values()))]
            order = permutation(count, self.config.seed)
            for (name, first), last in zip(zip(self.config.parts, cuts, strict=False), cuts[1:], strict=True):
                if name == self.config.keep:
                    chosen = order[first:last]
                elif last > first:
                    self.dropped[f"in part {name!r}"] += last - first
            for line in store.in_order(type(order)("Q", sorted(chosen))):
                yield decode_row(line.rstrip(b"\n"))
        finally:
            store.close()
