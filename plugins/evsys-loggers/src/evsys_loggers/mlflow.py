"""The callback and log store `mlflow`: runs in an MLflow tracking store, by default a SQLite file."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys_loggers.config import LoggerConfig
from evsys_loggers.facts import RunFacts, flat
from evsys_loggers.library_versions import require
from evsys_loggers.logger import RunLogger
from evsys_loggers.shipping import now
from evsys_loggers.sink import Record, Sink
from evsys_loggers.store import LoggerStore
from evsys_runtime.config.root import enclosing_project

__all__ = ["MlflowLogger", "MlflowStore"]

_ENDS = {
    "completed": "FINISHED",
    "partial": "FINISHED",
    "budget_stopped": "FINISHED",
    "stopped": "FINISHED",
    "cancelled": "KILLED",
}
_REFUSED = re.compile(r"[^\w\-. :/]", re.ASCII)
_LONGEST = 6000
"""Characters of a param that MLflow takes; of a tag it takes more."""

_BATCH = 1000
"""Metrics that MLflow takes in one request."""


class MlflowLogger(RunLogger):
    """Writes each run to an MLflow tracking store.

    MLflow's own variables (MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, ...) apply; without any, runs go into `mlflow.db` in the
    project's `.evsys`, or in `directory`: `mlflow ui --backend-store-uri sqlite:///.evsys/mlflow.db` shows them.
    """

    name: ClassVar[str] = "mlflow"

    @attrs.frozen(kw_only=True)
    class Config(LoggerConfig):
        """Parameters of `mlflow`."""

        tracking_uri: str | None = option(
            None,
            "where runs are kept; by default MLFLOW_TRACKING_URI, else a SQLite file",
            min_len=1,
        )

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        require("mlflow", "sqlalchemy", "alembic", logger=self.name)

    def open(self, run: RunFacts) -> Sink:
        """Make the run, or continue with it."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        for name in ("mlflow.store.db.utils", "alembic"):  # they announce each new table on standard error
            logging.getLogger(name).setLevel(logging.WARNING)
        client = MlflowClient(tracking_uri=self._uri(run))
        known = run.remembered().get("id")
        if known is not None:
            client.update_run(known, status="RUNNING")
            client.set_tag(known, "evsys.attempt", str(run.attempt))
            return _MlflowRun(client, known)
        experiment = client.get_experiment_by_name(run.project)
        if experiment is not None:
            number = experiment.experiment_id
        else:
            try:
                number = client.create_experiment(run.project)
            except MlflowException:  # another run made it meanwhile
                experiment = client.get_experiment_by_name(run.project)
                if experiment is None:
                    raise
                number = experiment.experiment_id
        tags = {**run.ids, **({"tags": ", ".join(run.tags)} if run.tags else {})}
        made = client.create_run(number, run_name=run.name, tags=tags)
        sink = _MlflowRun(client, made.info.run_id)
        sink.configure(run.config)
        run.remember(id=made.info.run_id)
        return sink

    def _uri(self, run: RunFacts) -> str:
        given = self.config.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        if given:
            return str(given)
        root = enclosing_project(run.folder)
        folder = run.files if self.config.directory is not None or root is None else root / ".evsys"
        folder.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{(folder / 'mlflow.db').resolve().as_posix()}"


class MlflowStore(LoggerStore):
    """Writes what the callback `mlflow` writes, for all runs of an experiment."""

    name: ClassVar[str] = "mlflow"
    logger: ClassVar[type[RunLogger]] = MlflowLogger
    Config: ClassVar[type[LoggerConfig]] = MlflowLogger.Config


class _MlflowRun:
    """A `Sink` over an MLflow run."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._names: dict[str, str] = {}

    def configure(self, config: Mapping[str, Any]) -> None:
        """Log the configuration as params, which MLflow lets no one change later."""
        from mlflow.entities import Param

        params = [Param(self._mlflow_name(path), str(value)[:_LONGEST]) for path, value in flat(config)]
        for start in range(0, len(params), 100):
            self._client.log_batch(self._run_id, params=params[start : start + 100])

    def write(self, records: Sequence[Record]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(self._mlflow_name(name), float(value), int(record.time * 1000), record.step)
            for record in records
            for name, value in record.named().items()
        ]
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + _BATCH])

    def close(self, status: str, facts: Mapping[str, str | float]) -> None:
        from mlflow.entities import Metric, RunTag

        numbers = {name: value for name, value in facts.items() if not isinstance(value, str)}
        tags = [
            RunTag(f"evsys.{self._mlflow_name(name)}", value)
            for name, value in facts.items()
            if isinstance(value, str)
        ]
        metrics = [
            Metric(f"run/{name}", float(value), int(now() * 1000), 0) for name, value in numbers.items()
        ]
        self._client.log_batch(self._run_id, metrics=metrics, tags=tags)
        self._client.set_terminated(self._run_id, _ENDS.get(status, "FAILED"))

    def _mlflow_name(self, name: str) -> str:
        """A name as MLflow takes it: `pass@1` becomes `pass_1`, and with a mark where another name became the same."""
        made = _REFUSED.sub("_", name)
        if self._names.setdefault(made, name) == name:
            return made
        made = f"{made}-{hashlib.sha256(name.encode('utf-8')).hexdigest()[:6]}"
        self._names[made] = name
        return made
