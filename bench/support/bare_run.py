"""A run on the mock backend with a record on disk and nothing around it."""

from evsys import HookManager
from evsys.types import Clients, ModelSpec, RunContext
from evsys_record.run_record import RunRecord
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.logging import configure, record_logger
from evsys_runtime.training.checkpoints import RunCheckpoints

__all__ = ["MODEL", "Rows", "bare_run"]

MODEL = ModelSpec(name="evsys/tiny")


class Rows(list):
    """A dataset as far as the loop and algorithms look at it."""

    fingerprint = "sha256:none"


def bare_run(record: RunRecord, client, rows: int, *, evaluate=None) -> RunContext:
    """The first attempt of a run whose record was made, on so many rows."""
    attempt = record.start_attempt()
    return RunContext(
        run_id=record.directory.name,
        arm="bench",
        repeat=0,
        attempt=attempt.n,
        run_dir=record.directory,
        config={"algorithm": {"kind": "fixed"}, "backend": {"kind": "mock"}},
        model=MODEL,
        seeds=Seeds(),
        data=Rows(range(rows)),
        clients=Clients(policy=client),
        record=record,
        checkpoints=RunCheckpoints(record.checkpoints, MODEL, attempt=attempt.n, attempts=record.attempts),
        hooks=HookManager(),
        log=record_logger(record, configure(console_level=None), arm="bench"),
        evaluate=evaluate,
    )
