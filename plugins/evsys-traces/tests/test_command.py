"""`evsys traces import` and `evsys traces tasks`."""

import json

import pytest
from click.testing import CliRunner
from log_formats import ROW, openai_log

from evsys.errors import ConfigError, DataError
from evsys_traces.command import traces


def run(*arguments, code=0):
    done = CliRunner().invoke(traces, list(map(str, arguments)))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def rows_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log of ten days, in a project."""
    (tmp_path / "pyproject.toml").write_text("[tool.evsys]\n")
    monkeypatch.chdir(tmp_path)
    documents = [
        {
            "messages": [
                {"role": "user", "content": f"question {'abcdefghij'[day]} of ada@example.org"},
                {"role": "assistant", "content": "an answer"},
            ],
            "created": f"2026-11-{day + 1:02}T00:00:00Z",
        }
        for day in range(10)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in [*documents, {"x": 1}]))
    return path


def test_import_writes_rows_and_reports_what_is_left_out(log, tmp_path):
    done = run("import", log)
    rows = rows_of(tmp_path / "traces.jsonl")
    assert len(rows) == 10
    assert done.stdout.splitlines() == [
        "10 conversations from 11 records (openai 10): traces.jsonl",
        f"  left out 1: not a known kind of record (first: {log}:11)",
        "  redacted 10 of email",
    ]


def test_personal_data_stays_only_if_asked_for(log, tmp_path):
    run("import", log)
    assert "ada@example.org" not in (tmp_path / "traces.jsonl").read_text()
    run("import", log, "--no-redact", "--force")
    assert "ada@example.org" in (tmp_path / "traces.jsonl").read_text()


def test_a_transform_may_redact_instead(log, tmp_path):
    chosen = {"kind": "redact", "params": {"kinds": [], "patterns": {"word": "question"}}}
    run("import", log, "--redact", json.dumps(chosen))
    assert rows_of(tmp_path / "traces.jsonl")[0]["messages"][0]["content"] == "[word 1] a of ada@example.org"


def test_the_report_is_one_document(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in openai_log()))
    out = tmp_path / "rows" / "out.jsonl"
    report = json.loads(run("import", path, "-o", out, "--json").stdout)
    assert (report["rows"], report["feedback"], report["left_out"], report["file"]) == (1, 1, {}, str(out))
    assert rows_of(out) == [ROW]


def test_an_existing_file_is_kept(log, tmp_path):
    (tmp_path / "traces.jsonl").write_text("mine")
    done = run("import", log, code=2)
    assert "--force" in done.output
    assert (tmp_path / "traces.jsonl").read_text() == "mine"


def test_nothing_is_left_behind_by_an_import_that_fails(tmp_path):
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises(DataError, match="empty"):
        run("import", tmp_path / "log.jsonl", "-o", tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_tasks_makes_versions_of_a_dataset_and_its_benchmark(log, tmp_path):
    run("import", log)
    done = run("tasks", "traces.jsonl", "support", "--test-share", "0.3", "--json")
    made = json.loads(done.stdout)
    assert (made["rows"], made["tasks"]) == (7, 3)
    assert len(rows_of(tmp_path / "data/datasets/support/v1/train.jsonl")) == 7
    assert len(rows_of(tmp_path / "data/validation/support-v1/tasks.jsonl")) == 3
    run("tasks", "traces.jsonl", "support", "--split", "test")
    assert (tmp_path / "data/datasets/support/v2/metadata.yaml").exists()
    assert (tmp_path / "data/benchmark/support-v2/tasks.jsonl").exists()


@pytest.mark.parametrize("name", ["../out", "a/b", "Two Words"])
def test_a_name_that_is_no_folder_is_refused(log, tmp_path, name):
    run("import", log)
    with pytest.raises(ConfigError, match="not a name"):
        run("tasks", "traces.jsonl", name)
    assert not (tmp_path / "data").exists()


def test_what_was_made_trains(log, tmp_path):
    from evsys_runtime.experiment import Experiment

    run("import", log)
    run("tasks", "traces.jsonl", "support", "--split", "test")
    config = tmp_path / "config.yaml"
    config.write_text(
        "version: 1\nname: t\nmetadata: {benchmark: {name: support-v1, split: test, max_tokens: 4}}\n"
        "run:\n  data: {dataset_name: support/v1}\n  model: {name: evsys/tiny}\n"
        "  algorithm: {kind: sft, params: {steps: 2}}\n  backend: {kind: mock}\n"
    )
    assert Experiment.from_yaml(config, quiet=True).run().status == "completed"
