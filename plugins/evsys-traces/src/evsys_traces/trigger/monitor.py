"""The state of a trigger: what it expects, and the evidence so far that traffic is no longer like that."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import DataError
from evsys_record.files import read_json
from evsys_stats.exchangeability import Martingale
from evsys_stats.intervals import wilson_interval
from evsys_traces.trigger.config import Trigger
from evsys_traces.trigger.features import BINS, MEASURES, InputModel, Observed, observed_traces

__all__ = ["Monitor", "Series"]

LEAST = 40
"""Traces that a reference needs."""

LEAST_OF_SLICE = 30
"""Judged traces that a slice needs in the reference to be watched by itself."""


@attrs.define(kw_only=True)
class Series:
    """One number of each trace that is watched.

    Attributes:
        name: `failures`, `failures of model=x`, `length`, `novelty`.
        martingale: the evidence.
        before: how often each value was in the reference.
    """

    name: str
    martingale: Martingale
    before: list[int]

    def evidence(self) -> dict[str, Any]:
        """The e-value, and what it is about: the rate of failures with its interval now and in the reference, or the median bin."""
        now = [count - old for count, old in zip(self.martingale.counts, self.before, strict=True)]
        facts: dict[str, Any] = {
            "series": self.name,
            "e_value": round(self.martingale.capital, 6),
            "traces": sum(now),
        }
        if self.name in MEASURES:
            return {**facts, "quantile": _mean_rank(now, self.before)}
        return {**facts, "rate": _rate(now), "reference": _rate(self.before)}


def _rate(counts: list[int]) -> dict[str, float] | None:
    total = sum(counts)
    if not total:
        return None
    low, high = wilson_interval(counts[1], total)
    return {"value": round(counts[1] / total, 4), "low": round(low, 4), "high": round(high, 4)}


def _mean_rank(now: list[int], before: list[int]) -> float | None:
    """The mean place of new values among those of the reference, 0 to 1; 0.5 if nothing changed."""
    total, known = sum(now), sum(before)
    if not total or not known:
        return None
    below, placed = 0, 0.0
    for new, old in zip(now, before, strict=True):
        placed += new * (below + old / 2) / known
        below += old
    return round(placed / total, 4)


@attrs.define(kw_only=True)
class Monitor:
    """The state of a trigger.

    Attributes:
        digests: of the trigger file's values and of the reference that it was made of.
        inputs: how usual inputs are.
        series: what is watched.
        until: the time of the latest trace seen; None before the first.
        keys: those of the traces of that time, so that none counts twice.
        new: traces since it fired last, or since it was armed.
        fired: the times when it fired, in seconds since 1970.
    """

    digests: dict[str, str]
    inputs: InputModel
    series: list[Series]
    until: float | None = None
    keys: list[int] = attrs.field(factory=list)
    new: int = 0
    fired: list[float] = attrs.field(factory=list)
    _names: frozenset[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._names = frozenset(each.name for each in self.series)

    @classmethod
    def arm(cls, trigger: Trigger) -> Monitor:
        """A trigger that has seen its reference alone.

        Raises:
            DataError: the reference can't be read, or is too small.
        """
        config = trigger.config
        traces = list(observed_traces(trigger.reference, config.slices, config.good))
        if len(traces) < LEAST:
            raise DataError(
                f"the reference has {len(traces)} traces, fewer than {LEAST}",
                source=str(trigger.reference),
                hint="import traces of a longer time",
            )
        return cls.from_traces(traces, trigger.digests)

    @classmethod
    def from_traces(cls, traces: Sequence[Observed], digests: Mapping[str, str]) -> Monitor:
        """A trigger that has seen these traces alone.

        What bins are made of isn't exchangeable with what comes later, so each trace serves one end.
        """
        inputs = InputModel.fit(traces[::4], traces[1::4])
        series = [Series(name="failures", martingale=Martingale("high", [0, 0]), before=[0, 0])]
        judged = Counter(item for t in traces if t.failed is not None for item in t.slices.items())
        series += [
            Series(name=_slice_name(*item), martingale=Martingale("high", [0, 0]), before=[0, 0])
            for item, count in sorted(judged.items())
            if count >= LEAST_OF_SLICE
        ]
        series += [
            Series(name=name, martingale=Martingale("both", [0] * BINS), before=[]) for name in MEASURES
        ]
        monitor = cls(digests=dict(digests), inputs=inputs, series=series)
        by_name = {each.name: each for each in series}
        for place, trace in enumerate(traces):
            for name, value in monitor._values(trace, inputs=place % 4 > 1):
                by_name[name].martingale.calibrate([value])
        for each in series:
            each.before = list(each.martingale.counts)
        return monitor

    @property
    def e_value(self) -> float:
        """The evidence of all series together: the mean of theirs."""
        return sum(each.martingale.capital for each in self.series) / len(self.series)

    def observe(self, traces: Iterator[Observed]) -> Counter[str]:
        """Bet on traces in the order of their times; those left out are counted by reason."""
        left_out: Counter[str] = Counter()
        timed = []
        for trace in traces:
            if trace.time is None:
                left_out["without a time"] += 1
            elif (self.until is not None and trace.time < self.until) or (
                trace.time == self.until and trace.key in self.keys
            ):
                left_out["not later than the last check"] += 1
            else:
                timed.append((trace.time, trace.key, trace))
        by_name = {each.name: each for each in self.series}
        for time, key, trace in sorted(timed, key=lambda each: each[:2]):
            for name, value in self._values(trace, inputs=True):
                martingale = by_name[name].martingale
                martingale.observe(value, _draw(name, key, martingale.seen))
            self.keys = [*self.keys, key] if time == self.until else [key]
            self.until = time
            self.new += 1
        return left_out

    def _values(self, trace: Observed, *, inputs: bool) -> Iterator[tuple[str, int]]:
        """The value of a trace in each series that it belongs to."""
        if trace.failed is not None:
            yield "failures", int(trace.failed)
            for item in trace.slices.items():
                if (name := _slice_name(*item)) in self._names:
                    yield name, int(trace.failed)
        if inputs:
            yield from self.inputs.bins(trace).items()

    def tree(self) -> dict[str, Any]:
        """Its state as plain values."""
        tree = attrs.asdict(self)
        del tree["_names"]
        return tree

    @classmethod
    def read(cls, path: Path) -> Monitor:
        """The state in a file.

        Raises:
            StoreError: it is missing or damaged.
        """
        tree = read_json(path, hint="`evsys trigger reset` begins a new one")
        series = [
            Series(name=each["name"], before=each["before"], martingale=Martingale(**each["martingale"]))
            for each in tree["series"]
        ]
        return cls(
            inputs=InputModel(**tree["inputs"]),
            series=series,
            **{name: tree[name] for name in ("digests", "until", "keys", "new", "fired")},
        )


def _draw(*facts: object) -> float:
    """A number of (0, 1] that is as good as drawn, and the same in each replay."""
    digest = hashlib.blake2b(repr(facts).encode(), digest_size=6).digest()
    return (int.from_bytes(digest) + 1) / 2**48


def _slice_name(key: str, value: str) -> str:
    return f"failures of {key}={value}"
