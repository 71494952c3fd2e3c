"""The way in for scripts and dashboards: what is written is read back, while it is written and after."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evsys_record
from evsys.errors import ConfigError, StoreError
from evsys.types import EvaluationResult, Rollout
from evsys_record.events import EventLog
from evsys_record.tail import Tail


@pytest.mark.parametrize("place", [".", ".evsys", ".evsys/experiments", "one"])
def test_a_project_and_every_folder_below_it_open_the_same_experiments(past, tmp_path, place):
    first, second = past.whole("one"), past.whole("two")
    path = first.directory if place == "one" else tmp_path / place
    assert [one.id for one in evsys_record.open(path)] == [second.experiment_id, first.experiment_id]


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="no folder"):
        evsys_record.open(tmp_path / "nowhere")


def test_a_project_without_experiments_has_none(tmp_path):
    (tmp_path / ".evsys").mkdir()
    assert list(evsys_record.open(tmp_path)) == []


def test_an_experiment_is_found_by_id_prefix_name_and_place(past):
    first, second = past.whole("one"), past.whole("two")
    lab = evsys_record.open(past.experiments)
    assert lab.experiment(first.experiment_id).id == lab.experiment("one").id == lab.experiment("-2").id
    assert lab.experiment("last").id == second.experiment_id
    with pytest.raises(ConfigError, match="no experiment 'three'"):
        lab.experiment("three")


def test_an_experiment_gives_its_file_its_conclusion_and_the_results_of_its_runs(past):
    past.whole("one", arm="b", effect=0.4)
    experiment = evsys_record.open(past.experiments).experiment("one")
    assert experiment.config == "version: 1\n"
    assert (experiment.status, experiment.conclusion.verdict) == ("completed", "SUPPORTED")
    (run,) = experiment.runs()
    assert (run.id, run.result.arm, run.result.identity) == ("b-s0", "b", "sha256:b")
    assert experiment.run("b-s0") == run
    with pytest.raises(ConfigError, match="has no run 'c-s0'"):
        experiment.run("c-s0")


def test_an_experiment_under_way_has_no_conclusion(past):
    record = past.begin()
    experiment = evsys_record.open(past.experiments).experiment("last")
    with record.lock:
        assert (experiment.status, experiment.conclusion) == ("running", None)
    assert experiment.status == "crashed"


def test_a_run_gives_what_is_live_of_its_lines(past):
    record = past.begin()
    run = record.run("a-s0", facts={"arm": "a", "repeat": 0})
    run.start_attempt()
    for step in (1, 2, 3):
        run.metrics(step, {"loss": 1.0 / step})
    run.start_attempt("resume", parent=1, from_step=2)
    run.metrics(3, {"loss": float("nan")})
    run.rollout(3, Rollout(task_id="t", sample_index=1), phase="validation", benchmark="faq")
    run.evaluation(EvaluationResult(benchmark="faq", split="val", status="completed", step=3))
    run.close()
    found = evsys_record.open(past.experiments).experiment("last").run("a-s0")
    assert [attempt.n for attempt in found.attempts] == [1, 2]
    assert list(found.metrics()) == [(1, {"loss": 1.0}), (2, {"loss": 0.5}), (3, {"loss": None})]
    (kept,) = found.rollouts("validation")
    assert (kept.step, kept.benchmark, kept.rollout.task_id, kept.rollout.sample_index) == (3, "faq", "t", 1)
    assert [(one.benchmark, one.step) for one in found.evaluations()] == [("faq", 3)]
    assert (found.result, list(found.training_data()), list(found.log())) == (None, [], [])


def test_following_yields_lines_as_they_are_written_until_the_experiment_ends(past):
    record = past.begin()
    record.lock.acquire()
    run = record.run("a-s0", facts={"arm": "a", "repeat": 0})
    run.start_attempt()
    run.metrics(1, {"loss": 1.0})
    todo = iter(
        [
            lambda: run.metrics(2, {"loss": 0.5}),
            lambda: run.intent(3, "b", ["r"]),
            lambda: (run.metrics(3, {"loss": 0.2}), past.end(record), record.lock.release()),
        ]
    )
    experiment = evsys_record.open(past.experiments).experiment("last")
    lines = list(experiment.follow(wait=lambda: next(todo)()))
    places = [(line.run, line.file.rpartition("/")[2], line.values["step"]) for line in lines]
    assert places == [
        ("a-s0", "metrics.jsonl", 1),
        ("a-s0", "metrics.jsonl", 2),
        ("a-s0", "journal.jsonl", 3),
        ("a-s0", "metrics.jsonl", 3),
    ]


def test_following_yields_what_is_written_between_the_status_and_the_end_of_the_process(past):
    record = past.begin()
    record.lock.acquire()
    past.end(record)
    experiment = evsys_record.open(past.experiments).experiment("last")
    assert (experiment.status, experiment.ended) == ("completed", False)

    def end():
        record.events.append("experiment.finished")
        record.lock.release()

    lines = list(experiment.follow(wait=end))
    assert [line.values["event"] for line in lines if line.file == "events.jsonl"][
        -1
    ] == "experiment.finished"
    assert experiment.ended


def test_following_from_now_leaves_out_the_lines_that_are_there(past):
    record = past.begin()
    record.lock.acquire()
    run = record.run("a-s0", facts={"arm": "a", "repeat": 0})
    run.start_attempt()
    run.metrics(1, {"loss": 1.0})
    experiment = evsys_record.open(past.experiments).experiment("last")

    def end():
        run.metrics(2, {"loss": 0.5})
        past.end(record)
        record.lock.release()

    assert [line.values["step"] for line in experiment.follow(from_start=False, wait=end)] == [2]


def test_a_cursor_continues_where_it_was_taken(past):
    record = past.begin()
    run = record.run("a-s0", facts={"arm": "a", "repeat": 0})
    run.start_attempt()
    for step in (1, 2, 3):
        run.metrics(step, {"loss": 1.0})
    past.end(record)
    experiment = evsys_record.open(past.experiments).experiment("last")
    first = experiment.follow()
    assert [next(first).values["step"], next(first).values["step"]] == [1, 2]
    assert [line.values["step"] for line in experiment.follow(first.cursor)] == [3]
    assert list(experiment.follow(experiment.follow(from_start=False).cursor)) == []


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "{}",
        '{"experiment": "x", "offsets": {}}',
        '{"experiment": "ID", "offsets": {"../runs/a/run.log.jsonl": 0}}',
    ],
)
def test_a_cursor_of_something_else_is_refused(past, cursor):
    record = past.whole()
    with pytest.raises(ConfigError, match="cursor"):
        evsys_record.open(past.experiments).experiment("last").follow(
            cursor.replace("ID", record.experiment_id)
        )


def test_events_are_numbered_over_processes(past):
    record = past.begin()
    for process in (1, 2):
        log = EventLog(record.directory)
        log.append("run.started", run="a-s0", attempt=process)
        log.append("run.finished", run="a-s0", attempt=process, status="completed")
        log.close()
    experiment = evsys_record.open(past.experiments).experiment("last")
    assert [(one.seq, one.event, one.attempt) for one in experiment.events()] == [
        (1, "run.started", 1),
        (2, "run.finished", 1),
        (3, "run.started", 2),
        (4, "run.finished", 2),
    ]
    assert [one.seq for one in experiment.events(after=3)] == [4]


def test_an_event_log_writes_nothing_once_its_guard_refuses(past):
    def refuse():
        raise StoreError("the lock was lost")

    record = past.begin()
    with pytest.raises(StoreError, match="lock was lost"):
        EventLog(record.directory, guard=refuse).append("run.started")
    assert list(evsys_record.open(past.experiments).experiment("last").events()) == []


def test_reading_changes_no_file(past, tmp_path):
    past.whole()
    files = {path: path.stat().st_mtime_ns for path in past.experiments.rglob("*") if path.is_file()}
    experiment = next(evsys_record.open(tmp_path).experiments())
    list(experiment.follow())
    assert experiment.conclusion is not None
    assert all(run.result is not None for run in experiment.runs())
    assert {path: path.stat().st_mtime_ns for path in past.experiments.rglob("*") if path.is_file()} == files


@given(st.lists(st.binary(max_size=12), max_size=20), st.data())
def test_a_tail_yields_each_whole_line_once_however_it_is_written(tmp_path_factory, chunks, data):
    path = tmp_path_factory.mktemp("tail") / "lines.jsonl"
    text = b"".join(b'{"n": %d}\n' % number for number in range(len(chunks)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    path.write_bytes(b"")
    tail, found = Tail(path), []
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        with path.open("ab") as stream:
            stream.write(text[begin:end])
        found += [line["n"] for line in tail.read()]
    assert found == list(range(len(chunks)))


def test_a_tail_reports_a_line_that_is_not_an_object(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"[1]\n")
    with pytest.raises(StoreError, match="expected an object"):
        list(Tail(path).read())
