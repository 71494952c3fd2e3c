"""The cost and the order of the steps that `evsys next` proposes, by the cost of similar runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from evsys_record import PastRun
from evsys_runtime.experiment.insight.results import NextStep

__all__ = ["TypicalRun", "per", "rank"]


def rank(step: NextStep) -> tuple[bool, float, bool, float]:
    """Money for each bit, then time; what isn't known comes last."""
    money, time = step.cost_usd, step.seconds
    return (
        money is None,
        (money or 0.0) / step.worth,
        time is None,
        (time or 0.0) / step.worth,
    )


def per(worth: float, amount: float | None, unit: float) -> float | None:
    """Bits for each unit of a cost; None where that isn't known, or nothing."""
    return None if not amount else float(f"{worth / amount * unit:.3g}")


@attrs.frozen(kw_only=True)
class TypicalRun:
    """The average cost of an experiment's own completed runs; US dollars and seconds, None if unknown."""

    seconds: float | None
    cost_usd: float | None

    @classmethod
    def from_runs(cls, runs: Sequence[PastRun]) -> TypicalRun:
        """The average over runs of one experiment."""
        done = [run for run in runs if run.status == "completed" and run.reused_from is None]
        seconds = [run.seconds for run in done if run.seconds is not None]
        priced = [run.usage for run in done if run.usage is not None and not run.usage.without_price]
        costs = [each.cost_usd or 0.0 for each in priced]
        return cls(
            seconds=sum(seconds) / len(seconds) if seconds else None,
            cost_usd=sum(costs) / len(costs) if costs and len(costs) == len(done) else None,
        )

    def times(self, runs: float) -> dict[str, Any]:
        """The cost of this many of them, as fields of a step."""
        return {
            "seconds": None if self.seconds is None else round(self.seconds * runs, 1),
            "cost_usd": None if self.cost_usd is None else round(self.cost_usd * runs, 6),
        }
