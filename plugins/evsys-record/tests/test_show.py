"""One experiment in full."""

import pytest

from evsys.errors import ConfigError, StoreError
from evsys_record.files import write_json
from evsys_record.index import Index
from evsys_record.result_trees import result_tree
from evsys_record.show import compact, show_experiment
from evsys_runtime.experiment.result_schemas import validate_result


@pytest.fixture
def show(past):
    def call(record, run=None):
        with Index(past.experiments) as index:
            index.refresh()
            found = show_experiment(index, record.experiment_id, run)
        validate_result(result_tree(found), "show")
        return found

    return call


def test_an_experiment_is_shown_with_its_conclusion_its_runs_and_its_files(past, show):
    record = past.whole()
    found = show(record)
    assert found.directory == str(record.directory)
    assert found.conclusion.comparisons[0].outcome == "win"
    assert [(s.step, s.metric, s.score.value) for s in found.runs[0].scores] == [
        (0, "pass@1", 0.1),
        (9, "pass@1", 0.5),
    ]
    assert found.runs[0].result.identity == "sha256:a"
    assert found.runs[0].files == ()
    assert [file.path for file in found.files] == [
        *(
            "conclusion.json",
            "conclusion.md",
            "config.yaml",
            "experiment.json",
            "hypothesis.md",
            "resolved.json",
            "runs/",
        )
    ]
    on_disk = sum(path.stat().st_size for path in (record.directory / "runs").rglob("*") if path.is_file())
    assert found.files[-1].bytes == on_disk
    assert compact(found).runs[0].result is None


def test_a_run_is_shown_alone_with_its_files_and_attempts(past, show):
    record = past.begin(arms=("a", "b"))
    past.train(record, "a")
    past.train(record, "b", status="failed", failure="out of luck")
    past.train(record, "b", attempt=2)
    found = show(record, "b")
    assert [run.past.run_id for run in found.runs] == ["b-s0"]
    (run,) = found.runs
    assert [(attempt.n, attempt.reason, attempt.parent) for attempt in run.attempts] == [
        (1, "start", None),
        (2, "resume", 1),
    ]
    assert (run.result.status, run.result.failure) == ("completed", None)
    assert [file.path for file in run.files] == [
        "hypothesis.md",
        "run.json",
        "run_result.1.json",
        "run_result.json",
    ]
    with pytest.raises(ConfigError, match="has no run 'c'"):
        show(record, "c")


def test_a_run_may_be_called_by_its_folder(past, show):
    record = past.begin(arms=("lr=1", "lr=2"))
    folder = past.train(record, "lr=2").directory.name
    assert folder != "lr=2-s0"
    assert show(record, folder).runs[0].past.run_id == "lr=2-s0"


def test_an_experiment_that_goes_on_again_has_no_conclusion_any_more(past, show):
    record = past.whole()
    record.note(status="running", finished=None)
    assert show(record).conclusion is None


def test_lineage_goes_up_to_the_first_and_down_to_the_children(past, show):
    first = past.whole("first", parent_experiment_id="20250101-000000-elsewhere")
    second = past.whole("second", parent_experiment_id=first.experiment_id)
    third = past.whole("third", parent_experiment_id=second.experiment_id)
    past.whole("dry", parent_experiment_id=first.experiment_id, dry=True)
    other = past.whole("other", parent_experiment_id=first.experiment_id)
    assert show(third).ancestors == (second.experiment_id, first.experiment_id, "20250101-000000-elsewhere")
    assert show(first).children == (second.experiment_id, other.experiment_id)
    assert show(third).children == ()


def test_a_circle_of_parents_has_an_end(past, show):
    first = past.whole("first")
    second = past.whole("second", parent_experiment_id=first.experiment_id)
    first.note(parent_experiment_id=second.experiment_id)
    assert show(first).ancestors == (second.experiment_id,)


def test_what_can_not_be_read_is_shown_with_the_reason(past, show):
    broken, run = past.whole("broken"), past.whole("run")
    (broken.directory / "experiment.json").write_text("{", encoding="utf-8")
    (run.directory / "runs/a-s0/run.json").write_text("{", encoding="utf-8")
    assert "isn't JSON" in show(broken).experiment.problem
    (shown_run,) = show(run).runs
    assert (shown_run.past.run_id, shown_run.result) == ("a-s0", None)
    assert "isn't JSON" in shown_run.past.problem


def test_a_result_of_another_shape_is_refused_by_name(past, show):
    record = past.whole()
    write_json(record.directory / "runs/a-s0/run_result.json", {"status": "completed", "evaluations": []})
    with pytest.raises(StoreError, match=r"runs/a-s0 ended with isn't as this version writes it: .*run_id"):
        show(record)
