"""A record that somebody else made: its file sends nothing outside, and the places that it names are named first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_project import RUN

from evsys.errors import StoreError
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json
from evsys_record.run_checkpoint import checkpoint_named
from evsys_runtime.experiment import Experiment


@pytest.fixture
def record(project) -> Path:
    return Path(project.experiment().run().directory)


def edited(record: Path, old: str, new: str) -> None:
    path = record / "config.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("kind", ["absolute", "upwards"])
def test_a_fork_is_written_next_to_its_parent_whatever_the_record_says(
    project, record, tmp_path_factory, kind
):
    outside = tmp_path_factory.mktemp("outside")
    place = outside if kind == "absolute" else Path("..") / ".." / outside.parent.name / outside.name
    edited(record, "name: trial\n", f"name: trial\noutput_dir: {place}\n")
    result = Experiment.fork(record, quiet=True).run()
    assert Path(result.directory).parent == record.parent
    assert list(outside.iterdir()) == []
    [told] = [text for text in result.warnings if "output_dir" in text]
    assert (
        told
        == f"the output_dir of the record, {place}, is not followed: records are written to {record.parent}"
    )


def test_an_output_dir_that_is_asked_for_is_followed(record, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    result = Experiment.fork(record, overrides=[f"output_dir={outside}"], quiet=True).run()
    assert Path(result.directory).parent == outside


def test_places_outside_of_the_project_are_named_before_they_are_used(project, record, tmp_path_factory):
    weights = tmp_path_factory.mktemp("weights")
    other = project.experiment(f"run:{RUN}", metadata="").run()
    saved = Path(other.arms[0].run_dir) / other.arms[0].run.final_checkpoint
    for file in saved.iterdir():
        (weights / file.name).write_bytes(file.read_bytes())
    edited(
        record, "model: {name: evsys/tiny}", f"model: {{name: evsys/tiny, init_from_checkpoint: {weights}}}"
    )
    fork = Experiment.fork(record, quiet=True)
    assert (
        f"the record names {weights}, which is outside its project ($.run.model.init_from_checkpoint)"
        in fork.plan.warnings
    )


def test_a_model_folder_outside_of_the_project_is_named(record):
    edited(record, "model: {name: evsys/tiny}", "model: {name: ../../models/theirs}")
    warnings = Experiment.fork(record, quiet=True).plan.warnings
    assert "the record names ../../models/theirs, which is outside its project ($.run.model.name)" in warnings


def test_an_honest_record_names_nothing(record):
    assert [text for text in Experiment.fork(record, quiet=True).plan.warnings if "the record" in text] == []


@pytest.mark.parametrize("name", ["../../../secret", "checkpoints/../../x", "a\0b"])
@pytest.mark.parametrize("key", ["final_checkpoint", "best_checkpoint", "selected_checkpoint"])
def test_a_result_that_names_a_checkpoint_outside_of_its_run_is_refused_when_it_is_read(record, key, name):
    renamed(record, key, {"step": 1, "checkpoint": name} if key == "selected_checkpoint" else name)
    run = ExperimentRecord.open(record).find_run("run-s0")
    with pytest.raises(StoreError, match="not inside the run's folder"):
        run.read_result()


def test_a_whole_path_is_read_and_not_followed(record):
    renamed(record, "final_checkpoint", "/etc/passwd")
    assert ExperimentRecord.open(record).find_run("run-s0").read_result() is not None
    with pytest.raises(StoreError, match="name the checkpoint's folder yourself, if you trust it"):
        checkpoint_named(str(record / "runs/run-s0"), record.parent)


def renamed(record: Path, key: str, name: object) -> None:
    path = record / "runs/run-s0/run_result.json"
    tree = read_json(path)
    tree["run"][key] = name
    path.write_text(json.dumps(tree), encoding="utf-8")
