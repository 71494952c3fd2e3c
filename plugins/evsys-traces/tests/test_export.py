"""Rollouts on record as spans, read back by the importer."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_project import Project

from evsys_record import find_experiment
from evsys_traces.command import traces
from evsys_traces.export import span_documents
from evsys_traces.importing import ImportReport, import_traces


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return Path(Project(tmp_path).experiment().run().directory)


def test_the_conversations_of_the_spans_are_those_of_the_rollouts(record, tmp_path):
    experiment = find_experiment(str(record), record.parent)
    [run] = experiment.runs()
    documents = list(span_documents(run, experiment.id, "validation"))
    rollouts = [each.rollout for each in run.rollouts("validation")]
    assert len(documents) == len(rollouts) > 0
    spans = [span for each in documents for span in each["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    assert len({span["spanId"] for span in spans}) == len(spans)
    assert {len(span["traceId"]) for span in spans} == {32}
    for span in spans:  # own rollouts aren't imported, so their mark is taken off
        span["attributes"] = [each for each in span["attributes"] if each["key"] != "evsys.experiment"]
    path = tmp_path / "spans.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in documents))
    rows = list(import_traces([path], ImportReport()))
    told = [[(message["role"], message["content"]) for message in row["messages"]] for row in rows]
    assert told == [[(message.role, message.content) for message in each.messages] for each in rollouts]


def test_own_rollouts_are_not_imported(record, tmp_path):
    path, runner = tmp_path / "spans.jsonl", CliRunner()
    named = f"{record.name}/run-s0"
    done = runner.invoke(
        traces, ["export", named, "-o", str(path), "--records", str(record.parent), "--json"]
    )
    assert done.exit_code == 0, done.output
    count = json.loads(done.stdout)["rollouts"]
    report = ImportReport()
    assert list(import_traces([path], report)) == []
    assert (
        report.left_out["a rollout of an evsys experiment"] == 2 * count
    )  # the agent's span, and the model's


def test_an_existing_file_is_kept(record, tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text("mine")
    named = f"{record.name}/run-s0"
    done = CliRunner().invoke(traces, ["export", named, "-o", str(path), "--records", str(record.parent)])
    assert done.exit_code == 2
    assert path.read_text() == "mine"
