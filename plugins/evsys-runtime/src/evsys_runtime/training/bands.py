"""Health contracts: the bands that an algorithm says its metrics stay in, and where a run left them.

Nothing ends because of them. A single odd step doesn't count, so a metric is out of its band once it has been for a
few steps in a row; the report is read from the metrics on record, so that it holds after a resume, for failed runs
and for loops of one's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PluginContractError
from evsys.optional import declared

if TYPE_CHECKING:
    from evsys.types import OutOfBand

__all__ = ["GRADIENT", "STEEP", "UNLIKELY", "Band", "bands_of", "out_of_bands"]


@attrs.frozen
class Band:
    """The range of a metric while training is healthy.

    Attributes:
        low: the smallest value; None without one.
        high: the largest value; None without one.
        why: the meaning of leaving the band, and what to do.
        lasting: values in a row that count, so that noise doesn't.
    """

    low: float | None
    high: float | None
    why: str
    lasting: int = 5

    def __attrs_post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ValueError("a band has a low or a high end")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"a band from {self.low:g} to {self.high:g} is empty")
        if self.lasting < 1:
            raise ValueError("a band is left for at least one step")

    def holds(self, value: float | None) -> bool:
        """True for a value in the band. None represents one that isn't finite, which is in no band."""
        if value is None:
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


STEEP = Band(
    None,
    1e3,
    "gradients this large are clipped to a direction without a size: lower the learning rate, or look at the rows",
)
"""The band of `grad_norm` of algorithms whose batches may have no signal."""

GRADIENT = Band(
    1e-12,
    1e3,
    "far above, gradients are clipped to a direction without a size; at 0 nothing is trained, and if the loss hasn't reached 0 the "
    "weights are dead: lower the learning rate, or look at the rows",
)
"""The band of `grad_norm` of algorithms that learn from every batch."""

UNLIKELY = Band(
    None,
    15.0,
    "a guess among all tokens would do better: training diverged, or rows aren't rendered as the model knows them",
)
"""The band of nats a token that algorithms share: the largest vocabularies have guesses of 12.5."""


def bands_of(algorithm: Any, name: str) -> Mapping[str, Band]:
    """The bands that an algorithm, or its class, declares as `health`; none where it declares nothing.

    Raises:
        PluginContractError: they are something else.
    """
    health: object = declared(algorithm, "health", {})
    if not isinstance(health, Mapping) or not all(
        isinstance(metric, str) and isinstance(band, Band) for metric, band in health.items()
    ):
        raise PluginContractError(
            f"algorithm {name!r}: `health` maps names of metrics to bands",
            hint="use evsys_runtime.Band(low, high, why)",
        )
    return health


def out_of_bands(lines: Iterable[Mapping[str, Any]], bands: Mapping[str, Band]) -> tuple[OutOfBand, ...]:
    """Which metrics left their band, for as long as counts, in the order of the bands.

    Args:
        lines: of the training's metrics, in the order of their steps: `step`, and `values` by name, None where one
            wasn't finite.
        bands: by the metric's name.
    """
    watched = {metric: _Watched(band) for metric, band in bands.items()}
    for line in lines:
        values = line["values"]
        for metric in watched.keys() & values.keys():
            watched[metric].add(int(line["step"]), values[metric])
    return tuple(found for metric, each in watched.items() if (found := each.result(metric)) is not None)


@attrs.define
class _Watched:
    """One metric on its way."""

    band: Band
    seen: int = 0
    out: int = 0
    first: int | None = None
    last: int = 0
    streak: int = 0
    began: int = 0

    def add(self, step: int, value: float | None) -> None:
        """Take in its value at a step."""
        self.seen += 1
        if self.band.holds(value):
            self.streak = 0
            return
        self.streak += 1
        if self.streak == 1:
            self.began = step
        if self.streak < self.band.lasting:
            return
        self.out += self.band.lasting if self.streak == self.band.lasting else 1
        self.first = self.began if self.first is None else self.first
        self.last = step

    def result(self, metric: str) -> OutOfBand | None:
        """The report; None if it stayed in its band."""
        from evsys.types import OutOfBand  # here, so that `evsys schema` stays quick

        if self.first is None:
            return None
        return OutOfBand(
            metric=metric,
            low=self.band.low,
            high=self.band.high,
            why=self.band.why,
            first_step=self.first,
            last_step=self.last,
            steps=self.out,
            share=self.out / self.seen,
        )
