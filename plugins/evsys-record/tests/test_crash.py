"""A process that is killed at any of its writes, half way through it too, loses nothing that it acknowledged."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evsys.types import Rollout
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json
from evsys_record.history import Question, ask
from evsys_record.index import Index
from evsys_record.jsonl import read_jsonl

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="lives are forked")

STEPS = (1, 2, 3)


def run_lives(top, places):
    script = Path(__file__).with_name("many_lives.py")
    command = [sys.executable, str(script), str(top), *map(str, places)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def acknowledged(root):
    path = root / "acknowledged"
    return [ast.literal_eval(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    """The folders of all lives: one that ended by itself, and one killed at each of its calls."""
    top = tmp_path_factory.mktemp("lives")
    run_lives(top, [0])
    calls = dict(what for what in acknowledged(top / "0") if len(what) == 2)["calls"]
    assert calls > 80
    run_lives(top, range(1, calls + 1))
    yield [top / str(place) for place in range(calls + 1)]
    shutil.rmtree(top)


def recorded(run):
    """What can be read of a run, in the words of its acknowledgements."""
    found = {("metrics", line["step"]) for line in run.read_metrics()}
    found |= {("rollout", line["step"]) for line in run.read_rollouts()}
    found |= {(line["event"], line["step"]) for line in run.read_journal()}
    return found | {("checkpoint", entry.step) for entry in run.checkpoints.complete()}


def test_what_was_acknowledged_is_on_file(lives):
    for root in lives:
        said = acknowledged(root)
        kinds = {what[0] for what in said}
        if "created" not in kinds:
            continue
        record = ExperimentRecord.open(root / "experiments" / said[0][1])
        assert record.config_bytes == b"name: crash\n"
        run = record.find_run("a-s0")
        if "run" in kinds:
            assert run.facts["arm"] == "a"
        if "attempt" in kinds:
            assert [attempt.n for attempt in run.attempts] == [1]
            assert recorded(run) >= {what for what in said if what[-1] in STEPS}, root
        if "data" in kinds:
            assert len(list(read_jsonl(run.training_data()))) == 20
        if "run_result" in kinds:
            assert run.read_result()["status"] == "completed"
        if "result" in kinds:
            assert record.read_result()["conclusion"]["verdict"] == "REFUTED"


def test_every_file_that_has_its_name_can_be_read(lives):
    for root in lives:
        for path in root.rglob("*.json"):
            if not any(part.startswith(".") for part in path.relative_to(root).parts):
                assert read_json(path)["format"] == 1
        for path in root.rglob("*.jsonl"):
            list(read_jsonl(path))


def history(root):
    with Index(root / "experiments") as index:
        return ask(index, Question()).experiments


def test_history_tells_how_each_life_ended(lives):
    for root in lives:
        kinds = {what[0] for what in acknowledged(root)}
        for listed in history(root):
            assert listed.problem is None
            # What was written, but not yet acknowledged, may count already.
            if "run_result" not in kinds:
                assert listed.status in ({"crashed"} if "run" in kinds else {"crashed", "running"})
            else:
                assert listed.status in ({"completed"} if "result" in kinds else {"completed", "crashed"})


def test_a_folder_that_never_became_an_experiment_is_not_listed(lives):
    for root in lives:
        listed = [each.experiment_id for each in history(root)]
        made = [what[1] for what in acknowledged(root) if what[0] == "created"]
        assert len(listed) <= 1
        assert listed[: len(made)] == made


def test_another_process_can_go_on_and_each_step_is_read_once(lives):
    for root in lives:
        for listed in history(root):
            record = ExperimentRecord.open(root / "experiments" / listed.experiment_id)
            go_on(record)
            assert list(record.directory.rglob(".*.tmp")) == [], root


def go_on(record):
    with record.lock:
        record.recover()
        run = record.run("a-s0", facts={"arm": "a"})
        latest = run.checkpoints.latest(run.attempts)
        saved = [int(path.name) for path in run.directory.glob("checkpoints/*")]
        assert sorted(saved) == [entry.step for entry in run.checkpoints.complete()]
        first, parent = (latest.step, latest.attempt) if latest else (0, None)
        if latest:
            latest.verify()
        run.start_attempt("resume", parent=parent, from_step=first)
        for step in STEPS[first:]:
            run.intent(step, f"b{step}", [])
            run.rollout(step, Rollout(task_id="t", sample_index=0))
            run.metrics(step, {"loss": 1.0 / step})
            run.done(step, f"b{step}")
        run.close()
    values = [(line["step"], line["values"]["loss"]) for line in run.read_metrics()]
    assert values == [(step, 1.0 / step) for step in STEPS]
    assert [line["step"] for line in run.read_rollouts()] == list(STEPS)
    assert [line["step"] for line in run.read_journal() if line["event"] == "done"] == list(STEPS)
