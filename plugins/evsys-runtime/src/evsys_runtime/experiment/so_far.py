"""How far a run came that ended without a result of its own, from what it has on record."""

from __future__ import annotations

from evsys.types import RunResult, Status, Usage
from evsys_runtime.record.run_record import RunRecord

__all__ = ["so_far"]


def so_far(record: RunRecord, status: Status) -> RunResult:
    """The steps that are done, the metrics of the last one, the tokens of all, and the last checkpoint.

    Raises:
        StoreError: the record can't be read.
    """
    steps = max((line["step"] for line in record.read_journal() if line.get("event") == "done"), default=0)
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
        usage=Usage(trained_tokens=tokens),
        final_checkpoint=None if saved is None else saved.directory.relative_to(record.directory).as_posix(),
    )
