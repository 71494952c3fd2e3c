"""The callback and log store `tensorboard`: event files that TensorBoard shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from evsys_loggers.config import LoggerConfig
from evsys_loggers.facts import RunFacts
from evsys_loggers.library_versions import require
from evsys_loggers.logger import RunLogger
from evsys_loggers.sink import Record, Sink
from evsys_loggers.store import LoggerStore

__all__ = ["TensorBoardLogger", "TensorBoardStore"]


class TensorBoardLogger(RunLogger):
    """Writes each run's metrics, scores, configuration and end as TensorBoard event files, in a folder of its own.

    Without `directory` these are `loggers/tensorboard` in a run's folder: `tensorboard --logdir .evsys/experiments` shows all. With
    it they are `<directory>/<project>/<name>`.
    """

    name: ClassVar[str] = "tensorboard"

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        require("tensorboard", logger=self.name)

    def open(self, run: RunFacts) -> Sink:
        """Begin an event file; each attempt has one, and hides what an earlier one logged beyond its first step."""
        own = self.config.directory is None
        return _EventFile(run, run.files / "tensorboard" if own else run.files / run.project / run.name)


class TensorBoardStore(LoggerStore):
    """Writes what the callback `tensorboard` writes, for all runs of an experiment."""

    name: ClassVar[str] = "tensorboard"
    logger: ClassVar[type[RunLogger]] = TensorBoardLogger
    Config: ClassVar[type[LoggerConfig]] = TensorBoardLogger.Config


class _EventFile:
    """A `Sink` over TensorBoard's own writer, which needs no TensorFlow."""

    def __init__(self, run: RunFacts, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event = Event
        self._writer = EventFileWriter(str(folder))
        self._add(0.0, run.from_step + 1, session_log=SessionLog(status=SessionLog.START))
        self._text("config", json.dumps(run.config, indent=2, ensure_ascii=False, default=str))
        if run.tags:
            self._text("tags", "\n".join(run.tags))
        self._writer.flush()

    def write(self, records: Sequence[Record]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        for record in records:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in record.named().items()]
            self._add(record.time, record.step, summary=Summary(value=values))
        self._writer.flush()

    def close(self, status: str, facts: Mapping[str, str | float]) -> None:
        lines = [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
        self._markdown("end", "\n".join(["| | |", "| --- | --- |", *lines]))
        self._writer.close()

    def _text(self, tag: str, text: str) -> None:
        self._markdown(tag, "\n".join(f"    {line}" for line in text.splitlines()))

    def _markdown(self, tag: str, text: str) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode("utf-8")])
        value = Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor)
        self._add(0.0, 0, summary=Summary(value=[value]))

    def _add(self, time: float, step: int, **what: Any) -> None:
        from evsys_loggers.shipping import now

        self._writer.add_event(self._event(wall_time=time or now(), step=step, **what))


def _cell(value: str | float) -> str:
    return str(value).replace("|", "\\|").replace("\n", "<br>")
