"""The usage of lost work, which is repeated because its process ended before the work was of use.

It is spent. But the decision whether to pay for one more arm leaves it out, to decide as if the process hadn't
ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from evsys_record.jsonl import read_jsonl
from evsys_record.run_record import RunRecord
from evsys_runtime.experiment.budget.budget import amounts_of_usage
from evsys_runtime.experiment.budget.charges import remaining_usage
from evsys_runtime.experiment.lineage.restart_point import RETREATS, RestartPoint

__all__ = ["repeated_work"]


def repeated_work(run: RunRecord, taken: RestartPoint) -> Mapping[str, float]:
    """The amounts of a run used twice once it has ended, as far as its record shows them.

    What a run loses where it goes back behind a collapse isn't among them: that belongs to it, however the process
    ended. Its tokens can't be distinguished then, and none are given.

    Args:
        run: the record of the run.
        taken: what is there of it.

    Raises:
        StoreError, KeyError: its journal can't be read.
    """
    again = {"steps": float(_steps_again(run, taken))}
    if any(attempt.reason in RETREATS for attempt in run.attempts):
        return again
    lost = taken.ended.cut_off if taken.ended is not None else remaining_usage(taken.paid, taken.counted)
    return {**again, **amounts_of_usage(lost)}


def _steps_again(run: RunRecord, taken: RestartPoint) -> int:
    """Steps that were made twice, or are going to be; each once between two times that the run went back."""
    went_back, times = {}, 0
    for attempt in run.attempts:
        times += attempt.reason in RETREATS
        went_back[attempt.n] = times
    done, of_use = 0, set()
    for line in read_jsonl(run.directory / "journal.jsonl", missing_ok=True):
        if line["event"] != "done":
            continue
        done += 1
        since = went_back[line["attempt"]]
        if taken.ended is not None or since < times or line["step"] <= taken.step:
            of_use.add((since, line["step"]))
    return done - len(of_use)
