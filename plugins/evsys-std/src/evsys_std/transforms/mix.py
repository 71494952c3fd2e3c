"""`mix`: rows of other files between the rows."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import attrs

from evsys import current_registry, option
from evsys_runtime import current_scope
from evsys_runtime.data.json_rows import decode_row
from evsys_runtime.data.lineage import derive_seed
from evsys_runtime.data.pipeline import apply, build_stages
from evsys_runtime.data.readers import ReadReport, read_rows
from evsys_runtime.data.spool import LineStore
from evsys_std.transforms.columns import Row
from evsys_std.transforms.shuffle import permutation, store_rows

__all__ = ["Mix", "MixSource", "MixTransform"]


@attrs.frozen(kw_only=True)
class MixTransform:
    """A transform that a source's rows go through first."""

    kind: str = option(..., "its name", min_len=1)
    params: dict[str, Any] = option(attrs.Factory(dict), "its parameters")


@attrs.frozen(kw_only=True)
class MixSource:
    """A file whose rows are mixed in."""

    path: str = option(..., "jsonl, json or csv file, relative to the project root", min_len=1)
    ratio: float = option(..., "how many of its rows come for each row of the data", gt=0)
    transforms: tuple[MixTransform, ...] = option((), "what its rows go through before they are mixed in")


class Mix:
    """Puts rows of other files between the rows, each source in a random order and at its ratio.

    A ratio of 0.25 adds a row for every four on average. An exhausted source begins again in another order.
    Sources wait like the rows of `shuffle` do: in memory while they are few, in a file once they are many.
    """

    name: ClassVar[str] = "mix"
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {"sources": [{"path": "other.jsonl", "ratio": 0.5}]},
        "files": {"other.jsonl": '{"text": "of another file"}\n'},
        "adds_rows": True,
    }

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `mix`."""

        sources: tuple[MixSource, ...] = option(..., "list of {path, ratio, transforms}", min_len=1)
        seed: int | None = option(None, "seed of the draws; by default derived from the run's seed")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self.seed = self.config.seed

    @property
    def files(self) -> dict[str, str]:
        """The files that it reads, by the place of their names in the params."""
        return {f"sources[{index}].path": source.path for index, source in enumerate(self.config.sources)}

    @property
    def transforms(self) -> dict[str, MixTransform]:
        """The transforms that it calls, by their place in the params."""
        return {
            f"sources[{index}].transforms[{number}]": transform
            for index, source in enumerate(self.config.sources)
            for number, transform in enumerate(source.transforms)
        }

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        seed = self.seed or 0
        draw = random.Random(derive_seed(seed, "mix"))
        stores: list[LineStore] = []
        try:
            feeds = []
            for index, source in enumerate(self.config.sources):
                stores.append(_store(source, derive_seed(seed, "mix source", index)))
                feeds.append((source.ratio, _endless(stores[-1], derive_seed(seed, "mix order", index))))
            for row in rows:
                yield row
                for ratio, feed in feeds:
                    whole = int(ratio)
                    for _ in range(whole + (draw.random() < ratio - whole)):
                        yield next(feed)
        finally:
            for store in stores:
                store.close()


def _store(source: MixSource, seed: int) -> LineStore:
    report = ReadReport(source=source.path)
    rows = read_rows(current_scope().resolve(source.path), report=report)
    stages = build_stages(source.transforms, current_registry(), seed=seed)
    return store_rows(apply(rows, stages, source=report))


def _endless(store: LineStore, seed: int) -> Iterator[Row]:
    """All rows in one order after another; a store is never empty, since reading refuses files without rows."""
    epoch = 0
    while True:
        for line in store.in_order(permutation(len(store), derive_seed(seed, "epoch", epoch))):
            yield decode_row(line.rstrip(b"\n"))
        epoch += 1
