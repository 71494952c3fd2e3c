"""The base of all log stores: each writes through the logger of its service."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from evsys_loggers.facts import RunFacts
from evsys_loggers.logger import RunLogger
from evsys_loggers.shipping import Shipper
from evsys_loggers.sink import Record
from evsys_record.secrets import Redactor
from evsys_runtime import in_background

__all__ = ["LoggerStore"]


class LoggerStore:
    """A log store over a `RunLogger`: one run of the service for each run, and one for the conclusion.

    Takes the records that `evsys_runtime.experiment.state.log_store` lists, and passes over any other. Like the logger it writes in
    threads; what fails there is raised by the next `write`, once for each kind of failure.
    """

    logger: ClassVar[type[RunLogger]]

    def __init__(self, **fields: Any) -> None:
        self._logger = self.logger(**fields)
        self._shippers: dict[str, Shipper] = {}

    async def write(self, record: Mapping[str, Any]) -> None:
        """Take a record; waits only for the end of a run."""
        event, run = record.get("event"), record.get("run")
        if event == "run_started":
            self._begin(str(run), record)
        elif event == "experiment_finished":
            await self._conclude(record)
        elif (shipper := self._shippers.get(str(run))) is not None:
            if event == "metrics":
                shipper.put(Record(record["step"], record["time"], record["group"], record["values"]))
            elif event == "run_finished":
                del self._shippers[str(run)]
                shipper.close(record["status"], record["facts"])
                await self._logger.finished(asyncio.wrap_future(shipper.done))
            if (failure := shipper.failure()) is not None:
                raise failure

    async def close(self) -> None:
        """End the runs that nothing ended, as interrupted."""
        open_ones, self._shippers = list(self._shippers.values()), {}
        await asyncio.gather(*(in_background(shipper.abandon) for shipper in open_ones))

    def _begin(self, run: str, record: Mapping[str, Any]) -> None:
        facts = RunFacts.of_record(
            self._logger.name, self._logger.config, record, Redactor.from_environment()
        )
        before = self._shippers.get(run)
        if before is not None:  # an attempt that was given up
            before.close("cancelled", {"status": "cancelled"})
        shipper = Shipper(
            self._logger.name,
            partial(self._logger.open, facts),
            flush_seconds=self._logger.config.flush_seconds,
        )
        self._shippers[run] = shipper
        weakref.finalize(self, shipper.abandon)

    async def _conclude(self, record: Mapping[str, Any]) -> None:
        facts = RunFacts.of_experiment(
            self._logger.name, self._logger.config, record["experiment"], Path(record["directory"])
        )
        ending = in_background(
            self._logger.conclude, facts, record["time"], record["status"], record["facts"], record["values"]
        )
        await self._logger.finished(asyncio.ensure_future(ending))
