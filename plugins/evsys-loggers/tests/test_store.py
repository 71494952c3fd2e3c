"""Log stores over loggers: the same runs at a service, from records alone."""

import asyncio
from typing import ClassVar

import pytest
from memory_service import Service
from small_project import METADATA, Project

from evsys import Registry, use_registry
from evsys_loggers.config import LoggerConfig
from evsys_loggers.mlflow import MlflowLogger, MlflowStore
from evsys_loggers.store import LoggerStore
from evsys_loggers.tensorboard import TensorBoardLogger, TensorBoardStore
from evsys_loggers.trackio import TrackioLogger, TrackioStore
from evsys_loggers.wandb import WandbLogger, WandbStore


class ServiceStore(LoggerStore):
    """The store over a logger that writes into memory."""

    name: ClassVar[str] = "service"
    logger = Service
    Config = LoggerConfig


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs an experiment that logs to the service, by a callback, a log store, or both."""
    monkeypatch.setattr(Service, "opened", [])
    monkeypatch.setattr(Service, "broken", None)
    registry = Registry()
    registry.register("callback", "service", Service)
    registry.register("log_store", "service", ServiceStore)

    def running(extra: str):
        with use_registry(registry):
            return Project(tmp_path).experiment(metadata=METADATA, extra=extra).run()

    return running


def test_a_store_writes_what_the_logger_writes(run):
    params = "params: {flush_seconds: 0.01, project: words}"
    result = run(f"callbacks: [{{kind: service, {params}}}]\nlog_store: {{kind: service, {params}}}\n")
    assert result.status == "completed"
    assert len(Service.opened) == 4
    names = [sink.run.run for sink in Service.opened]
    assert sorted(names) == ["conclusion", "conclusion", "run-s0", "run-s0"]
    for name in ("run-s0", "conclusion"):
        one, other = (sink for sink in Service.opened if sink.run.run == name)
        assert one.run == other.run
        assert [(r.step, r.group, r.values) for r in one.records] == [
            (r.step, r.group, r.values) for r in other.records
        ]
        assert one.end[0] == other.end[0]


def test_a_service_that_fails_is_a_warning_and_training_goes_on(run, monkeypatch):
    monkeypatch.setattr(Service, "broken", ConnectionError("no route"))
    result = run("log_store: {kind: service, params: {flush_seconds: 0.01}}\n")
    assert result.status == "completed"
    assert any("ConnectionError: no route" in line for line in result.warnings)


def test_runs_that_nothing_ended_are_ended_as_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(Service, "opened", [])
    monkeypatch.setattr(Service, "broken", None)
    store = ServiceStore(flush_seconds=0.01)
    start = {"event": "run_started", "experiment": "e", "run": "a-s0", "arm": "a", "repeat": 0, "attempt": 1}

    async def interrupted() -> None:
        await store.write({**start, "from_step": 0, "directory": str(tmp_path), "config": {}})
        await store.write({"event": "noted", "anything": [1, None]})
        await store.close()

    asyncio.run(interrupted())
    (sink,) = Service.opened
    assert sink.end == ("cancelled", {"status": "cancelled"})


@pytest.mark.parametrize(
    ("store", "logger"),
    [
        (MlflowStore, MlflowLogger),
        (TensorBoardStore, TensorBoardLogger),
        (TrackioStore, TrackioLogger),
        (WandbStore, WandbLogger),
    ],
)
def test_a_store_takes_the_name_and_the_params_of_its_logger(store, logger):
    assert (store.name, store.logger, store.Config) == (logger.name, logger, logger.Config)
