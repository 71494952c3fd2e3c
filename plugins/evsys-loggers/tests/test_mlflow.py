"""`mlflow`: what a SQLite store holds."""

import pytest
from attempts import attempt, context, needs

from evsys_loggers.mlflow import MlflowLogger

# MLflow's own: it uses what SQLAlchemy will take out, and leaves its connections to the garbage collector
pytestmark = [
    needs("mlflow"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One database for all: making its tables takes seconds."""
    return f"sqlite:///{(tmp_path_factory.mktemp('mlflow') / 'mlflow.db').as_posix()}"


def runs(store, project):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name(project)
    return client, client.search_runs([experiment.experiment_id])


def history(client, run, name):
    return sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, name))


def test_a_run_holds_metrics_scores_params_tags_and_its_end(tmp_path, store):
    logger = MlflowLogger(project="whole", tags=("one", "two"), tracking_uri=store, close_seconds=110)
    attempt(logger, context(tmp_path), range(1, 6), [(0, 0.25), (3, 0.5)])
    client, (run,) = runs(store, "whole")
    assert history(client, run, "training/loss") == [(step, float(step)) for step in range(1, 6)]
    assert history(client, run, "val/val/pass_1") == [(0, 0.25), (3, 0.5)]
    assert history(client, run, "run/steps") == [(0, 5.0)]
    assert run.data.params["algorithm.params.learning_rate"] == "0.01"
    assert run.data.params["tags"] == '["t"]'
    assert run.info.run_name == "20260101-000000-trial/a-s0"
    assert run.data.tags["evsys.run"] == "a-s0"
    assert run.data.tags["tags"] == "one, two"
    assert run.data.tags["evsys.stop_reason"] == "early_stopping: enough"
    assert run.info.status == "FINISHED"


def test_a_resumed_attempt_goes_on_in_the_same_run(tmp_path, store):
    for number, (steps, status) in enumerate([([1, 2], "cancelled"), ([2, 3], "failed")], 1):
        logger = MlflowLogger(project="again", tracking_uri=store, close_seconds=110)
        attempt(logger, context(tmp_path, attempt=number), steps, status=status)
        client, (run,) = runs(store, "again")
        assert run.info.status == {"cancelled": "KILLED", "failed": "FAILED"}[status]
        assert run.data.tags["evsys.attempt"] == str(number)
    assert history(client, run, "training/loss") == [(1, 1.0), (2, 2.0), (2, 2.0), (3, 3.0)]


def test_names_that_become_the_same_are_kept_apart(tmp_path, store):
    logger = MlflowLogger(project="names", tracking_uri=store, close_seconds=110)
    ctx = context(tmp_path)
    logger.evsys_step_finished(ctx, 1, {"a[k=4]": 1.0, "a(k=4)": 2.0, "plain": float("nan")})
    attempt(logger, ctx, [2])
    _, (run,) = runs(store, "names")
    found = {name: value for name, value in run.data.metrics.items() if name.startswith("training/a")}
    assert sorted(found.values()) == [1.0, 2.0]
    assert "training/a_k_4_" in found


def test_without_an_address_runs_go_into_a_file_of_the_project(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    ctx = context(tmp_path)
    facts = _facts(MlflowLogger(), ctx)
    assert MlflowLogger()._uri(facts) == f"sqlite:///{(tmp_path / '.evsys' / 'mlflow.db').as_posix()}"
    logger = MlflowLogger(directory="logs")
    assert logger._uri(_facts(logger, ctx)) == f"sqlite:///{(tmp_path / 'logs' / 'mlflow.db').as_posix()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    assert MlflowLogger()._uri(facts) == "http://localhost:5000"
    assert MlflowLogger(tracking_uri="http://localhost:1")._uri(facts) == "http://localhost:1"


def _facts(logger, ctx):
    from evsys_loggers.facts import RunFacts
    from evsys_record.secrets import Redactor

    return RunFacts.of_run("mlflow", logger.config, ctx, Redactor())
