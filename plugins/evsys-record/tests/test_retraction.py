"""Conclusions that are taken back: appended, never overwritten, and known wherever the experiment is cited."""

import json

import attrs
import pytest

from evsys.errors import ConfigError
from evsys.types import NoiseFloor
from evsys_record.citations import resting_on_retracted, retract_experiment
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.history import Question, ask
from evsys_record.index import Index
from evsys_record.retraction import retract, retraction_of
from evsys_record.show import show_experiment


@pytest.fixture
def index(past):
    with Index(past.experiments) as made:
        yield made


def files_of(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def citing_by_checkpoint(past, cited, key):
    record = past.whole("from-checkpoint", arm="z")
    tree = json.loads((record.directory / "resolved.json").read_bytes())
    tree["arms"][0]["run"]["model"][key] = f".evsys/experiments/{cited}/runs/a-s0/checkpoints/000100"
    record.write_resolved(tree)
    return record.experiment_id


def test_a_retraction_is_appended_and_changes_no_other_file(past):
    record = past.whole()
    before = files_of(record.directory)
    retract(record.directory, "the grader\n took every answer")
    after = files_of(record.directory)
    added = after.keys() - before.keys()
    assert [path.name for path in added] == ["retractions.jsonl"]
    assert all(after[path] == before[path] for path in before)
    assert retraction_of(record.directory).reason == "the grader took every answer"


def test_it_can_be_withdrawn_and_made_again_and_every_line_stays(past):
    record = past.whole()
    retract(record.directory, "first")
    retract(record.directory, "it was right", withdrawn=True)
    assert retraction_of(record.directory) is None
    retract(record.directory, "second")
    assert retraction_of(record.directory).reason == "second"
    assert len((record.directory / "retractions.jsonl").read_text("utf-8").splitlines()) == 3


def test_without_a_reason_or_with_nothing_to_withdraw_it_is_refused(past):
    record = past.whole()
    with pytest.raises(ConfigError, match="needs a reason"):
        retract(record.directory, "  ")
    with pytest.raises(ConfigError, match="nothing to withdraw"):
        retract(record.directory, "why", withdrawn=True)
    assert not (record.directory / "retractions.jsonl").exists()


def test_no_secret_gets_into_it(past, monkeypatch):
    monkeypatch.setenv("LAB_API_KEY", "sk-very-secret-value")
    record = past.whole()
    retract(record.directory, "the key sk-very-secret-value was used up")
    assert b"sk-very-secret-value" not in (record.directory / "retractions.jsonl").read_bytes()


def test_history_and_show_mark_it_and_all_that_cites_it(past, index):
    cited = past.whole("cited", arm="a").experiment_id
    child = past.whole("child", arm="b", parent_experiment_id=cited).experiment_id
    grandchild = past.whole("grandchild", arm="c", parent_experiment_id=child).experiment_id
    trained_on = citing_by_checkpoint(past, cited, "init_from_checkpoint")
    went_on = citing_by_checkpoint(past, cited, "load_checkpoint_path")
    floor = past.begin("floor", arms=("d",))
    past.train(floor, "d")
    noise = NoiseFloor(
        baseline="base_model",
        metric="m",
        runs={"x": 0.5, "y": 0.6},
        largest=0.1,
        standard_deviation=0.1,
        experiment_id=cited,
    )
    past.end(floor, arms={"d": ("win", 0.4)}, noise_floor=noise)
    other = past.whole("other", arm="e").experiment_id
    index.refresh()
    assert all(each.rests_on == () for each in ask(index, Question()).experiments)
    told = retract_experiment(index, cited, "its tasks leaked")
    resting = {child, grandchild, trained_on, went_on, floor.experiment_id}
    assert set(told.resting) == resting
    index.refresh()
    found = {each.experiment_id: each for each in ask(index, Question()).experiments}
    assert found[cited].retracted == "its tasks leaked"
    assert found[cited].rests_on == ()
    assert {name for name, each in found.items() if each.rests_on == (cited,)} == resting
    assert (found[other].retracted, found[other].rests_on) == (None, ())
    assert show_experiment(index, grandchild).experiment.rests_on == (cited,)
    assert [each.name for each in ask(index, Question(words="leaked")).experiments] == ["cited"]


def test_experiments_that_cite_each_other_do_no_harm(past, index):
    first = past.whole("first")
    second = past.whole("second", arm="b", parent_experiment_id=first.experiment_id)
    first.note(parent_experiment_id=second.experiment_id)
    retract(first.directory, "wrong")
    index.refresh()
    assert resting_on_retracted(index) == {second.experiment_id: (first.experiment_id,)}


def test_conclusions_that_a_later_one_superseded_are_told_with_their_files(past, index):
    record = past.begin(arms=("a",))
    past.train(record, "a")
    past.end(record, verdict="INCONCLUSIVE")
    opened = ExperimentRecord.open(record.directory)
    opened.reopen()
    past.end(opened, verdict="SUPPORTED", arms={"a": ("win", 0.4)})
    index.refresh()
    found = show_experiment(index, record.experiment_id)
    assert found.experiment.superseded == ("INCONCLUSIVE",)
    assert [attrs.astuple(each) for each in found.superseded] == [
        ("conclusion.1.json", "INCONCLUSIVE", "it is completed")
    ]
    assert found.conclusion.verdict == "SUPPORTED"


def test_a_damaged_file_makes_the_record_unreadable_with_its_line(past, index):
    record = past.whole()
    (record.directory / "retractions.jsonl").write_text("[]\n", encoding="utf-8")
    index.refresh()
    (found,) = ask(index, Question()).experiments
    assert "retractions.jsonl:1" in found.problem
