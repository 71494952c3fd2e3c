"""`trackio`: what its database holds."""

import os

import pytest
from attempts import attempt, context, needs

from evsys.errors import StoreError
from evsys_loggers.trackio import TrackioLogger

pytestmark = needs("trackio")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """trackio has one folder a process."""
    from evsys_loggers.trackio import _library

    folder = tmp_path_factory.mktemp("trackio")
    before = os.environ.get("TRACKIO_DIR")
    _library(folder)
    assert os.environ.get("TRACKIO_DIR") == before
    return folder


def read(project, run):
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage.get_runs(project), SQLiteStorage.get_logs(project, run)


def test_a_run_holds_metrics_scores_config_and_its_end_and_nothing_is_printed(tmp_path, capsys):
    attempt(
        TrackioLogger(project="whole", name="{arm}", tags=("one",)),
        context(tmp_path),
        range(1, 6),
        [(3, 0.5)],
    )
    runs, logs = read("whole", "a")
    assert runs == ["a"]
    assert [(row["step"], row["training/loss"]) for row in logs if "training/loss" in row] == [
        (step, float(step)) for step in range(1, 6)
    ]
    assert [(row["step"], row["val/val/pass@1"]) for row in logs if "val/val/pass@1" in row] == [(3, 0.5)]
    assert [row["evsys/stop_reason"] for row in logs if "evsys/stop_reason" in row] == [
        "early_stopping: enough"
    ]
    from trackio.sqlite_storage import SQLiteStorage

    config = SQLiteStorage.get_run_config("whole", "a")
    assert config["algorithm"]["params"]["learning_rate"] == 0.01
    assert config["tags"] == ["one"]
    assert capsys.readouterr().out == ""


def test_a_resumed_attempt_goes_on_in_the_same_run(tmp_path):
    for number, steps in enumerate([[1, 2], [2, 3]], 1):
        attempt(TrackioLogger(project="again"), context(tmp_path, attempt=number), steps)
    runs, logs = read("again", "20260101-000000-trial/a-s0")
    assert runs == ["20260101-000000-trial/a-s0"]
    assert sorted((row["attempt"], row["step"]) for row in logs if "training/loss" in row) == [
        *((1, 1), (1, 2)),
        *((2, 2), (2, 3)),
    ]


def test_a_run_is_not_gone_on_with_that_has_the_name_alone_in_common(tmp_path):
    for place in ("one", "two"):
        attempt(TrackioLogger(project="same", name="run"), context(tmp_path / place), [1])
    attempt(TrackioLogger(project="same", name="run"), context(tmp_path / "two", attempt=2), [2])
    with pytest.raises(StoreError, match="another run called 'run'"):
        attempt(TrackioLogger(project="same", name="run"), context(tmp_path / "one", attempt=2), [2])


def test_what_it_can_not_write_is_told(tmp_path, monkeypatch):
    from trackio.sqlite_storage import SQLiteStorage

    def full(*arguments, **named):
        raise OSError("no space left")

    monkeypatch.setattr(SQLiteStorage, "bulk_log", full)
    with pytest.raises(StoreError, match="no space left"):
        attempt(TrackioLogger(project="full"), context(tmp_path), [1, 2])


def test_a_second_folder_in_one_process_is_refused(tmp_path, folder):
    with pytest.raises(StoreError, match="for this process already"):
        attempt(TrackioLogger(directory="elsewhere"), context(tmp_path), [1])
