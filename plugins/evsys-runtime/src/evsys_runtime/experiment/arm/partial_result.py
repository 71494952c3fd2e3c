"""How far a run came that ended without a result of its own, from what it has on record."""

from __future__ import annotations

from datetime import datetime

from evsys.errors import StoreError
from evsys.types import RunResult, Status, Usage
from evsys_record.run_record import RunRecord

__all__ = ["partial_result"]


def partial_result(record: RunRecord, status: Status) -> RunResult:
    """The completed steps, the metrics of the last one, tokens and seconds of all, and the last checkpoint.

    Raises:
        StoreError: the record can't be read.
    """
    try:
        steps, seconds = _last_step(record)
    except (KeyError, ValueError) as error:
        raise StoreError(f"{record.directory / 'journal.jsonl'} holds no journal ({error!r})") from error
    metrics: dict[str, float] = {}
    tokens, at = 0, None
    for line in record.read_metrics():
        metrics = metrics if line["step"] == at else {}
        at = line["step"]
        metrics |= {name: value for name, value in line["values"].items() if value is not None}
        tokens += int(line["values"].get("tokens") or 0)
    saved = record.checkpoints.latest(record.attempts)
    return RunResult(
        status=status,
        steps=steps,
        run_id=record.run_id,
        metrics=metrics,
        usage=Usage(trained_tokens=tokens, seconds=seconds),
        final_checkpoint=None if saved is None else saved.directory.relative_to(record.directory).as_posix(),
    )


def _last_step(record: RunRecord) -> tuple[int, float]:
    """The last completed step, and the seconds between the intent of each step and its end."""
    steps, seconds = 0, 0.0
    begun: dict[int, datetime] = {}
    ended: datetime | None = None
    for line in record.read_journal():
        at = datetime.fromisoformat(line["time"])
        if line.get("event") == "intent":
            begun[line["step"]] = at
        elif line.get("event") == "done":
            steps = max(steps, line["step"])
            start = begun.pop(line["step"], None)
            if start is not None:  # a step may be submitted before the one before it is done
                seconds += (at - (start if ended is None else max(start, ended))).total_seconds()
            ended = at
    return steps, seconds
