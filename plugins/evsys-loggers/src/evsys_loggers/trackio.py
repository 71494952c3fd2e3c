"""The callback and log store `trackio`: runs in trackio's local database, a Hugging Face Space or a server of your own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.errors import StoreError
from evsys_loggers.config import LoggerConfig
from evsys_loggers.facts import RunFacts
from evsys_loggers.library_versions import require
from evsys_loggers.logger import RunLogger
from evsys_loggers.sink import Record, Sink
from evsys_loggers.store import LoggerStore

__all__ = ["TrackioLogger", "TrackioStore"]

_IMPORTING = Lock()


class TrackioLogger(RunLogger):
    """Writes each run to trackio; `trackio show` shows them.

    `directory` is trackio's own for the whole process: a second one in the same process is refused.
    """

    name: ClassVar[str] = "trackio"

    @attrs.frozen(kw_only=True)
    class Config(LoggerConfig):
        """Parameters of `trackio`."""

        directory: str | None = option(
            None,
            "folder of its databases, relative to the project root; by default TRACKIO_DIR, else trackio's own",
            min_len=1,
        )
        space_id: str | None = option(None, "Hugging Face Space that runs are sent to", min_len=1)
        server_url: str | None = option(
            None,
            "server of your own that runs are sent to; its token comes from TRACKIO_WRITE_TOKEN",
            min_len=1,
        )

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        require("trackio", logger=self.name)

    def open(self, run: RunFacts) -> Sink:
        """Make the run, or continue with it: trackio finds it by its name."""
        trackio = _library(None if self.config.directory is None else run.files)
        known = run.remembered().get("id")
        made = trackio.init(
            project=run.project,
            name=run.name,
            group=run.experiment,
            space_id=self.config.space_id,
            server_url=self.config.server_url,
            config={**run.config, "tags": list(run.tags)},
            resume="never" if known is None else "allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        if known not in (None, made.id):
            made.finish()
            raise StoreError(
                f"trackio has another run called {run.name!r} in {run.project!r}, so this one can't be found again",
                hint="put {experiment} and {run} into `name`",
            )
        run.remember(id=made.id)
        return _TrackioRun(made, run.attempt)


class TrackioStore(LoggerStore):
    """Writes what the callback `trackio` writes, for all runs of an experiment."""

    name: ClassVar[str] = "trackio"
    logger: ClassVar[type[RunLogger]] = TrackioLogger
    Config: ClassVar[type[LoggerConfig]] = TrackioLogger.Config


class _TrackioRun:
    """A `Sink` over a trackio run."""

    def __init__(self, run: Any, attempt: int) -> None:
        self._run = run
        self._attempt = attempt
        self._failures: list[str] = []
        self._last = 0
        # trackio only warns of what it couldn't write, wherever warnings go.
        run._warn_once = self._note  # noqa: SLF001

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            self._run.log({**record.named(), "attempt": self._attempt}, step=record.step)
            self._last = max(self._last, record.step)
        self._raise()

    def close(self, status: str, facts: Mapping[str, str | float]) -> None:
        self._run.log({f"evsys/{name}": value for name, value in facts.items()}, step=self._last)
        self._run.finish()
        self._raise()

    def _note(self, _: str, message: str) -> None:
        self._failures.append(message)

    def _raise(self) -> None:
        if self._failures:
            raise StoreError(self._failures.pop(0))


def _library(folder: Path | None) -> Any:
    """Import trackio, which reads its folder then, once a process; and keep standard output clean of what it prints.

    Raises:
        StoreError: it was imported with another folder.
    """
    with _IMPORTING:
        if folder is not None and "trackio" not in sys.modules:
            before = os.environ.get("TRACKIO_DIR")
            os.environ["TRACKIO_DIR"] = str(folder.resolve())
            try:
                import trackio
            finally:
                if before is None:
                    del os.environ["TRACKIO_DIR"]
                else:
                    os.environ["TRACKIO_DIR"] = before
        import trackio
        from trackio import run, utils

        if folder is not None and Path(utils.TRACKIO_DIR).resolve() != folder.resolve():
            raise StoreError(
                f"trackio keeps its databases in {utils.TRACKIO_DIR} for this process already, not in {folder}",
                hint="give every run the same directory",
            )
        for module in (
            trackio,
            run,
            utils,
        ):  # by name, for these alone: standard output belongs to the command
            vars(module)["print"] = _say_nothing
    return trackio


def _say_nothing(*_: Any, **__: Any) -> None:
    """Silence trackio's prints, which repeat a run's own messages."""
