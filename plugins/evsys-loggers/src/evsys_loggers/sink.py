"""The destination of a logger, and the records that it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Record", "Sink"]


class Record(NamedTuple):
    """Values at a step: how many optimiser steps are behind them, when they were known (seconds since 1970), and what kind
    of values they are, such as `training`.
    """

    step: int
    time: float
    group: str
    values: Mapping[str, float]

    def named(self) -> dict[str, float]:
        """The values by `<group>/<name>`."""
        return {f"{self.group}/{name}": value for name, value in self.values.items()}


class Sink(Protocol):
    """One run at one service. Everything is called from one thread, which belongs to the run."""

    def write(self, records: Sequence[Record]) -> None:
        """Write records, all or none as far as the service allows: what raises is tried again."""

    def close(self, status: str, facts: Mapping[str, str | float]) -> None:
        """Write how the run ended, and let go of it."""
