"""The tables of `csv_metrics`: whole after every row, whatever columns come later, and after a kill."""

import csv
import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_project import Project

from evsys.errors import ConfigError, DataError
from evsys.types import EvaluationResult, Failure, MetricValue
from evsys_std.csv_metrics import CsvMetrics, Table


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def context(tmp_path, attempt=1):
    return SimpleNamespace(run_dir=tmp_path, attempt=attempt)


def test_each_step_is_a_row_as_soon_as_it_is_done(tmp_path):
    callback = CsvMetrics()
    for step in (1, 2):
        callback.evsys_step_finished(context(tmp_path), step, {"loss": 1 / 3, "tokens": 12.0})
        assert len(read(tmp_path / "metrics.csv")) == step
    assert read(tmp_path / "metrics.csv")[1] == {
        "attempt": "1",
        "step": "2",
        "loss": repr(1 / 3),
        "tokens": "12.0",
    }


def test_a_metric_that_comes_later_is_a_column_that_is_empty_before(tmp_path):
    callback = CsvMetrics()
    ctx = context(tmp_path)
    callback.evsys_step_finished(ctx, 1, {"loss": 2.0})
    callback.evsys_step_finished(ctx, 2, {"kl": 0.5, "loss": 1.0})
    callback.evsys_step_finished(ctx, 3, {"kl": 0.25})
    rows = read(tmp_path / "metrics.csv")
    assert [(row["loss"], row["kl"]) for row in rows] == [("2.0", ""), ("1.0", "0.5"), ("", "0.25")]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_only_every_so_many_steps_are_written(tmp_path):
    callback = CsvMetrics(every=3)
    for step in range(1, 8):
        callback.evsys_step_finished(context(tmp_path), step, {"loss": 1.0})
    assert [row["step"] for row in read(tmp_path / "metrics.csv")] == ["3", "6"]
    with pytest.raises(ValueError, match="every"):
        CsvMetrics(every=0)


def test_a_later_attempt_goes_on_behind_a_row_that_a_killed_one_left_unfinished(tmp_path):
    CsvMetrics().evsys_step_finished(context(tmp_path), 1, {"loss": 2.0})
    with (tmp_path / "metrics.csv").open("a", encoding="utf-8") as file:
        file.write("1,2,0.")
    CsvMetrics().evsys_step_finished(context(tmp_path, attempt=2), 2, {"loss": 1.5})
    assert [(row["attempt"], row["step"], row["loss"]) for row in read(tmp_path / "metrics.csv")] == [
        ("1", "1", "2.0"),
        ("2", "2", "1.5"),
    ]


def test_a_kill_while_the_header_is_replaced_leaves_the_old_table(tmp_path, monkeypatch):
    callback = CsvMetrics()
    callback.evsys_step_finished(context(tmp_path), 1, {"loss": 2.0})
    before = (tmp_path / "metrics.csv").read_bytes()

    def killed(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        callback.evsys_step_finished(context(tmp_path), 2, {"kl": 2.0})
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_a_file_that_is_no_table_of_metrics_is_left_alone(tmp_path):
    (tmp_path / "metrics.csv").write_text("name,age\nAda,36\n", encoding="utf-8")
    with pytest.raises(DataError, match="isn't a table of metrics"):
        CsvMetrics().evsys_step_finished(context(tmp_path), 1, {"loss": 2.0})
    assert (tmp_path / "metrics.csv").read_text(encoding="utf-8") == "name,age\nAda,36\n"


def test_scores_have_a_row_a_metric_and_scorings_without_scores_one(tmp_path):
    callback = CsvMetrics()
    scored = EvaluationResult(
        benchmark="held, out",
        split="val",
        step=25,
        status="completed",
        metrics={
            "mean_reward": MetricValue(value=0.5, low=0.25, high=0.75, n=8),
            "pass@3": MetricValue(value=None),
        },
        no_score=1,
    )
    failed = EvaluationResult(
        benchmark="other",
        split="test",
        step=25,
        status="failed",
        failure=Failure(boundary="evaluation", message="no", error_type="E"),
    )
    for evaluation in (scored, failed):
        callback.evsys_evaluation_finished(context(tmp_path), evaluation)
    callback.evsys_run_finished(context(tmp_path), SimpleNamespace(evaluations=[scored, failed]))
    rows = read(tmp_path / "scores.csv")
    assert [(r["benchmark"], r["status"], r["metric"], r["value"], r["low"], r["n"]) for r in rows] == [
        ("held, out", "completed", "mean_reward", "0.5", "0.25", "8"),
        ("held, out", "completed", "pass@3", "", "", "0"),
        ("other", "failed", "", "", "", ""),
    ]
    assert not (tmp_path / "metrics.csv").exists()


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.text(st.sampled_from('ab,"\n\r é')), st.floats(), max_size=4),
        min_size=1,
        max_size=6,
    ),
    cut=st.integers(0, 40),
)
def test_whatever_is_added_is_read_back_and_a_cut_costs_the_last_row_alone(tmp_path_factory, rows, cut):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    table = Table(path, ("attempt", "step"))
    for number, row in enumerate(rows):
        table.add({"attempt": 1, "step": number, **row})
    table.close()
    whole = path.read_bytes()
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.reader(file))
    assert len(found) == len(rows) + 1
    columns = found[0]
    for row, values in zip(rows, found[1:], strict=True):
        assert {c: v for c, v in zip(columns, values, strict=True) if c in row} == {
            name: str(value) for name, value in row.items()
        }
    last = len(csv_line(found[-1]))
    path.write_bytes(whole[: len(whole) - min(cut, last - 1)])
    again = Table(path, ("attempt", "step"))
    again.add({"attempt": 2, "step": 99})
    again.close()
    with path.open(encoding="utf-8", newline="") as file:
        kept = list(csv.reader(file))
    assert kept[: len(found) - 1] == found[:-1]
    assert kept[-1][:2] == ["2", "99"]


def csv_line(values):
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue().encode("utf-8")


def test_runs_of_one_experiment_have_tables_of_their_own(tmp_path):
    extra = "n_repeats: 2\ncallbacks: [{kind: csv_metrics}]\n"
    result = Project(tmp_path).experiment(extra=extra).run()
    assert result.status == "completed"
    for arm in result.arms:
        rows = read(Path(arm.run_dir) / "metrics.csv")
        assert [row["step"] for row in rows] == [str(step) for step in range(1, 7)]
        assert float(rows[-1]["loss"]) == arm.run.metrics["loss"]
        scores = read(Path(arm.run_dir) / "scores.csv")
        assert sorted((row["step"], row["benchmark"], row["metric"]) for row in scores) == [
            ("0", "val", "mean_reward"),
            ("6", "val", "mean_reward"),
        ]


def test_wrong_params_are_refused():
    with pytest.raises((ConfigError, TypeError)):
        CsvMetrics(evry=1)
