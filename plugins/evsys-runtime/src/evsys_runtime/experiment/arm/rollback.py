"""A run whose training collapsed continues from an earlier checkpoint, as an attempt with a parent. The collapsed
attempt stays in the record.

There, `run.json` says from which step of which attempt the new one continued, journal, metrics and checkpoints name
their attempt, and the result of the abandoned one is `run_result.<attempt>.json`.
"""

from __future__ import annotations

from collections.abc import Sequence

from evsys.optional import declared
from evsys.protocols import Algorithm
from evsys.types import RunResult
from evsys_record.run_record import RunRecord
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.arm.best_checkpoint import BestCheckpoint
from evsys_runtime.experiment.lineage.restart_point import RestartPoint, is_whole, take_up
from evsys_runtime.training.retreat import Retreat

__all__ = ["go_back", "way_back"]


def way_back(algorithm: Algorithm, result: RunResult, retreats: int) -> Retreat | None:
    """The algorithm's response to the end of its training; None if the run is over, as it is without
    `after_collapse`.

    Args:
        algorithm: whose training ended.
        result: how.
        retreats: how often this run went back before.
    """
    ask = declared(algorithm, "after_collapse")
    if ask is None or result.status != "collapsed":
        return None
    found: Retreat | None = ask(result, retreats)
    return found


def go_back(
    record: RunRecord, retreat: Retreat, best: BestCheckpoint, benchmarks: Sequence[BoundBenchmark]
) -> RestartPoint:
    """Begin an attempt that continues from the best checkpoint before the collapse, or starts over where there is none. Blocking.

    Raises:
        StoreError: the record can't be written or read.
    """
    there = {entry.step: entry for entry in record.checkpoints.complete(record.attempts)}
    ranked = (one.step for one in best.rank(retreat.before))
    # Those that `take_up` will find.
    step = next((step for step in ranked if step in there and is_whole(there[step])), 0)
    record.start_attempt(retreat.kind, parent=record.attempt, from_step=step)
    return take_up(record, benchmarks)
