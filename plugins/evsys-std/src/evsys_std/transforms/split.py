"""`split`: one named part of the rows; the parts of one split never overlap."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime.data.json_rows import decode_row
from evsys_runtime.data.row_contents import content_digest
from evsys_std.transforms.columns import MISSING, Row, getter
from evsys_std.transforms.shuffle import permutation, store_rows

__all__ = ["Split"]


class Split:
    """Keeps the rows of one part, in their order. Rows of equal content always fall into one part.

    Content is the column `key`, or all columns but those that number a row (`id`, `uuid`, `index`, `..._id`); case, white space, accents,
    look-alike letters and invisible characters make no difference. `method: hash` puts each row into a part by its content, so a row stays
    in its part when others come or go; the sizes are met on average. `method: ratio` draws the parts, so the sizes are exact up to
    copies that stay together, and any change of the rows may move them all; with `stratify` each value of a column is divided alike.

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
            None, "the column that decides which rows stay together; rows that lack it go by all columns"
        )
        stratify: str | None = option(
            None, "for ratio: the column of which each value is divided in the same shares"
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
        if config.method == "hash" and config.stratify is not None:
            raise ValueError("`stratify` needs `method: ratio`")
        self._key = None if config.key is None else getter(config.key)

    @property
    def streaming(self) -> bool:
        """True by content: each row is judged alone."""
        return self.config.method == "hash"

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        self.dropped = Counter()
        return self._by_hash(rows) if self.config.method == "hash" else self._by_ratio(rows)

    def _content(self, row: Row) -> bytes:
        value = MISSING if self._key is None else self._key(row)
        return content_digest(dict(row) if value is MISSING else value)

    def _by_hash(self, rows: Iterable[Row]) -> Iterator[Row]:
        ends = list(accumulate(self.config.parts.values()))
        names = list(self.config.parts)
        salt = f"evsys-split/2:{self.config.seed}:".encode()
        for row in rows:
            digest = hashlib.blake2b(salt + self._content(row), digest_size=8).digest()
            point = int.from_bytes(digest, "big") / 2**64
            part = next((name for name, end in zip(names, ends, strict=True) if point < end), names[-1])
            if part == self.config.keep:
                yield row
            else:
                self.dropped[f"in part {part!r}"] += 1

    def _by_ratio(self, rows: Iterable[Row]) -> Iterator[Row]:
        groups = _Groups()
        stratum = None if self.config.stratify is None else getter(self.config.stratify)
        store = store_rows(self._group_rows(rows, groups, stratum))
        try:
            parts = groups.divided(self.config.parts, self.config.seed)
            chosen = array(
                "Q", (n for n, group in enumerate(groups.of_row) if parts[group] == self.config.keep)
            )
            for group, size in enumerate(groups.sizes):
                if parts[group] != self.config.keep:
                    self.dropped[f"in part {parts[group]!r}"] += size
            for line in store.in_order(chosen):
                yield decode_row(line.rstrip(b"\n"))
        finally:
            store.close()

    def _group_rows(self, rows: Iterable[Row], groups: _Groups, stratum: Any) -> Iterator[Row]:
        for row in rows:
            groups.add(self._content(row), b"" if stratum is None else content_digest(_label(stratum(row))))
            yield row


class _Groups:
    """Rows by their content: groups are numbered in the order of their first rows, and belong to the stratum of that row.

    Memory: some 120 bytes for each different content, and 8 bytes a row.
    """

    def __init__(self) -> None:
        self.of_row = array("Q")
        self.sizes: list[int] = []
        self._numbers: dict[bytes, int] = {}
        self._strata: dict[bytes, list[int]] = {}

    def add(self, content: bytes, stratum: bytes) -> None:
        """Note the next row."""
        group = self._numbers.setdefault(content, len(self.sizes))
        if group == len(self.sizes):
            self.sizes.append(0)
            self._strata.setdefault(stratum, []).append(group)
        self.sizes[group] += 1
        self.of_row.append(group)

    def divided(self, parts: Mapping[str, float], seed: int) -> list[str]:
        """The part of each group: within a stratum, groups in a drawn order, each in the part where its middle row falls."""
        found = [""] * len(self.sizes)
        for groups in self._strata.values():
            count = sum(self.sizes[group] for group in groups)
            cuts = [round(end * count) for end in accumulate(parts.values())]
            before = 0
            for place in permutation(len(groups), seed):
                size = self.sizes[groups[place]]
                middle = before + size / 2
                part = next(
                    (name for name, cut in zip(parts, cuts, strict=True) if middle < cut), [*parts][-1]
                )
                found[groups[place]] = part
                before += size
        return found


def _label(value: Any) -> Any:
    return None if value is MISSING else value
