"""What every logger does with hooks, whatever it writes to."""

import asyncio
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from memory_service import Service, Sink
from small_project import METADATA, RUN, Project

from evsys import Registry, current_registry, use_registry
from evsys.errors import ConfigError, PluginLoadError, StoreError
from evsys.types import ArmResult, EvaluationResult, MetricValue
from evsys_loggers import library_versions
from evsys_loggers.config import LoggerConfig
from evsys_loggers.facts import RunFacts
from evsys_loggers.library_versions import require
from evsys_record.secrets import Redactor

SECRET = "sk-proj-4f9a1b7c2d8e6f3a5b9c"


@pytest.fixture
def service(monkeypatch):
    """The logger under the name `service` of a project's registry."""
    monkeypatch.setattr(Service, "opened", [])
    monkeypatch.setattr(Service, "broken", None)
    registry = Registry()
    registry.register("callback", "service", Service)
    return registry


def experiment(tmp_path, registry, params="", extra="", text=None, **options):
    project = Project(tmp_path)
    metadata = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 2")
    callbacks = f"callbacks: [{{kind: service, params: {{flush_seconds: 0.01{params}}}}}]\n"
    with use_registry(registry):
        return project.experiment(text, metadata=metadata, extra=extra + callbacks, **options)


def test_steps_scores_and_the_end_of_each_run_are_logged_and_the_conclusion_as_one_more(tmp_path, service):
    result = experiment(tmp_path, service, extra="n_repeats: 2\n").run()
    assert result.warnings == (
        "backend 'mock' only imitates a model: its scores are not evidence about evsys/tiny",
    )
    runs = {sink.run.run: sink for sink in Service.opened}
    assert sorted(runs) == ["conclusion", "run-s0", "run-s1"]
    for arm in result.arms:
        sink = runs[arm.run_id]
        steps = [record for record in sink.records if record.group == "training"]
        assert [record.step for record in steps] == [1, 2, 3, 4, 5, 6]
        assert steps[-1].values == arm.run.metrics
        scores = {record.step: record.values for record in sink.records if record.group == "val/val"}
        assert sorted(scores) == [0, 2, 4, 6]
        for evaluation in arm.evaluations:
            metric = evaluation.metrics["mean_reward"]
            assert scores[evaluation.step]["mean_reward"] == metric.value
            assert scores[evaluation.step]["mean_reward/low"] == metric.low
        status, facts = sink.end
        assert (status, facts["status"], facts["steps"]) == ("completed", "completed", 6)
        assert sink.run.config["algorithm"]["params"]["lora_rank"] == 4
        assert sink.run.name == f"{result.experiment_id}/{arm.run_id}"
    status, verdict = runs["conclusion"].end
    assert verdict["verdict"] == result.conclusion.verdict
    assert verdict["outcome.run"] == result.conclusion.comparisons[0].outcome
    effects = runs["conclusion"].records[0].values
    assert effects["run/effect"] == result.conclusion.comparisons[0].effect


def test_a_logger_that_fails_is_a_warning_and_training_goes_on(tmp_path, service, monkeypatch):
    monkeypatch.setattr(Service, "broken", ConnectionError(f"no route with Bearer {SECRET}"))
    result = experiment(tmp_path, service).run()
    assert result.status == "completed"
    assert result.arms[0].run.steps == 6
    warnings = [line for line in result.arms[0].warnings if "service" in line]
    assert any("ConnectionError: no route" in line for line in warnings)
    assert any("records were not written" in line for line in warnings)
    assert not any(SECRET in line for line in result.warnings)


def test_a_logger_that_hangs_is_left_after_close_seconds(tmp_path, service, monkeypatch):
    forever = threading.Event()

    class Stuck(Sink):
        def write(self, records):
            forever.wait(60)

    monkeypatch.setattr(Service, "open", lambda self, run: Stuck(run, None))
    result = experiment(tmp_path, service, ", close_seconds: 0.05").run()
    forever.set()
    assert result.status == "completed"
    assert any("service wasn't done within 0.05 s" in line for line in result.warnings)


def test_secrets_reach_no_logger(tmp_path, service, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    monkeypatch.setenv("OTHER", "kept-out-too")
    found = experiment(
        tmp_path,
        service,
        ", tags: [one], name: '{run}'",
        text="run:\n  tags: ['${SERVICE_API_KEY}']" + RUN,
    )
    found.run()
    for sink in Service.opened:
        text = repr((sink.run, sink.records, sink.end))
        assert SECRET not in text
    assert "${SERVICE_API_KEY}" in repr(Service.opened[0].run.config)


def test_values_of_secret_names_and_of_the_environment_are_hidden_in_the_config(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    ctx = context(
        tmp_path, config={"backend": {"params": {"api_key": "abcdefghij", "url": f"http://u:{SECRET}@h/"}}}
    )
    logger = Service(tags=(SECRET,), project=f"p {SECRET}")
    facts = RunFacts.of_run(
        "service",
        logger.config,
        ctx,
        Redactor.from_environment(),
    )
    assert SECRET not in repr(facts)
    assert "abcdefghij" not in repr(facts)


def context(folder, attempt=1, restored=None, **given):
    run_dir = folder / "20260101-000000-trial" / "runs" / "a-s0"
    run_dir.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(
        **{
            "run_id": "a-s0",
            "arm": "a",
            "repeat": 0,
            "attempt": attempt,
            "run_dir": run_dir,
            "config": {"seed": 1},
            "checkpoints": SimpleNamespace(restored=restored),
            "evaluate": None,
            **given,
        }
    )


def ended(status="completed"):
    return ArmResult(run_id="a-s0", arm="a", repeat=0, seed=0, status=status, identity="x")


def test_all_attempts_at_a_run_have_one_id_and_say_where_they_begin(tmp_path, monkeypatch):
    monkeypatch.setattr(Service, "opened", [])
    for attempt, restored in ((1, None), (2, SimpleNamespace(step=4))):
        logger = Service()
        ctx = context(tmp_path, attempt, restored)
        logger.evsys_data_prepared(ctx)
        logger.evsys_step_finished(ctx, 5, {"loss": 1.0})
        asyncio.run(logger.evsys_run_finished(ctx, ended()))
    first, second = Service.opened
    assert first.id == second.id
    assert (first.again, second.again["id"]) == ({}, first.id)
    assert [sink.run.from_step for sink in Service.opened] == [0, 4]


def test_scores_of_an_earlier_attempt_are_not_logged_again(tmp_path, monkeypatch):
    monkeypatch.setattr(Service, "opened", [])
    known = EvaluationResult(
        benchmark="val", split="val", step=0, status="completed", metrics={"m": MetricValue(value=0.5)}
    )
    for attempt, times in ((1, 1), (2, 0)):
        logger = Service()
        ctx = context(tmp_path / str(attempt), attempt, evaluate=SimpleNamespace(results=[known]))
        logger.evsys_data_prepared(ctx)
        logger.evsys_run_started(ctx)
        asyncio.run(logger.evsys_run_finished(ctx, ended()))
        assert len(Service.opened[-1].records) == times


def test_scorings_without_scores_and_api_models_do_not_pass_for_scores_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(Service, "opened", [])
    logger, ctx = Service(), context(tmp_path)
    value = {"m": MetricValue(value=0.5, low=None, high=1.0), "n": MetricValue(value=None)}
    logger.evsys_evaluation_finished(
        ctx,
        EvaluationResult(
            benchmark="val", split="val", step=0, status="completed", metrics=value, model="gpt"
        ),
    )
    logger.evsys_evaluation_finished(
        ctx, EvaluationResult(benchmark="val", split="val", step=3, status="failed")
    )
    asyncio.run(logger.evsys_run_finished(ctx, ended("failed")))
    assert [(r.step, r.named()) for r in Service.opened[0].records] == [
        (0, {"val/val@gpt/m": 0.5, "val/val@gpt/m/high": 1.0})
    ]


def test_a_failure_is_raised_by_the_next_hook_and_only_once(tmp_path, monkeypatch):
    monkeypatch.setattr(Service, "broken", OSError("full"))
    logger, ctx = Service(flush_seconds=0.001), context(tmp_path)
    logger.evsys_data_prepared(ctx)
    logger.evsys_step_finished(ctx, 1, {"loss": 1.0})
    raised = []
    try:
        asyncio.run(logger.evsys_run_finished(ctx, ended()))
    except StoreError as error:
        raised.append(str(error))
    assert raised
    assert raised[0] == "service can't be written to: OSError: full"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"name": "{step}"}, r"unknown placeholder \{step\}; known: \{experiment\}, \{run\}"),
        ({"name": "{run"}, "name"),
        ({"name": "{run.x}"}, "unknown placeholder"),
        ({"flush_seconds": 0}, "flush_seconds"),
        ({"project": ""}, "project"),
        ({"projekt": "x"}, "projekt"),
    ],
)
def test_wrong_params_are_told_before_anything_is_run(params, message):
    registry = Registry(entry_points=())
    registry.register("callback", "service", Service)
    with pytest.raises(ConfigError, match=message):
        registry.build("callback", "service", params)


@pytest.mark.parametrize(
    ("directory", "files"),
    [(None, "20260101-000000-trial/runs/a-s0/loggers"), ("logs", "logs")],
)
def test_files_lie_in_the_run_or_below_the_project(tmp_path, directory, files):
    (tmp_path / ".evsys").mkdir()
    facts = RunFacts.of_run("service", LoggerConfig(directory=directory), context(tmp_path), Redactor())
    assert facts.files == tmp_path / files


def test_what_is_not_installed_is_one_error_with_the_line_that_installs_it():
    with pytest.raises(PluginLoadError) as caught:
        require("evsys_no_such_library", "os", logger="wandb")
    assert str(caught.value) == (
        "logger 'wandb' needs the package `evsys_no_such_library`; pip install 'evsys-loggers[wandb]'"
    )


@pytest.mark.parametrize("name", ["mlflow", "tensorboard", "trackio", "wandb"])
def test_a_library_that_is_missing_is_a_problem_of_the_file(name, tmp_path, monkeypatch):
    monkeypatch.setattr(library_versions, "find_spec", lambda module: None)
    Project(tmp_path)
    with pytest.raises((ConfigError, PluginLoadError), match=rf"pip install 'evsys-loggers\[{name}\]'"):
        Project(tmp_path).experiment(extra=f"callbacks: [{{kind: {name}}}]\n")


def test_loggers_are_made_without_their_libraries_being_imported():
    code = (
        "import sys\n"
        "from importlib.util import find_spec\n"
        "from evsys import current_registry\n"
        "for name in ('mlflow', 'tensorboard', 'trackio', 'wandb'):\n"
        "    plugin = current_registry().get('callback', name)\n"
        "    current_registry().schema('callback', name)\n"
        "    if find_spec(name): plugin()\n"
        "assert not {'mlflow', 'tensorboard', 'trackio', 'wandb'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_entry_points_are_there():
    names = {
        entry.name
        for entry in current_registry().entries("callback")
        if entry.distribution == "evsys-loggers"
    }
    assert names == {"mlflow", "tensorboard", "trackio", "wandb"}
