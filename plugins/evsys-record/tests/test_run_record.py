import errno
import math
import os
import sys
import threading
from pathlib import Path

import pytest

from evsys.errors import StoreError
from evsys.protocols import Recorder
from evsys.types import (
    ArmResult,
    EvaluationResult,
    Message,
    MetricValue,
    NoScore,
    Rollout,
    RunResult,
    Score,
    Turn,
)
from evsys_record.hashing import file_digest
from evsys_record.jsonl import read_jsonl
from evsys_record.keep_rollouts import KeepRollouts
from evsys_record.result_trees import read_as
from evsys_record.rollouts import rollout_from_tree
from evsys_record.run_record import RunRecord
from evsys_record.secrets import Redactor
from evsys_runtime.data.cache import DatasetCache
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.experiment.result_schemas import validate_result
from evsys_runtime.logging import LogSettings, configure, context, record_logger


def keep_and_link(record, rows, cache):
    entry = cache.keep(rows, {"transforms": []}, label="training-data")
    record.link_training_data(entry)
    return entry


@pytest.fixture
def record(tmp_path):
    record = RunRecord(tmp_path / "runs" / "a-s0", redactor=Redactor({"API_KEY": "sk-canary-123456"}))
    record.create("a-s0", hypothesis="A helps.", facts={"arm": "a", "repeat": 0, "seed": 7})
    yield record
    record.close()


def rollout(task="t1", sample=0, **fields):
    turn = Turn(
        message=Message(role="assistant", content="x"), prompt_tokens=(1, 2), tokens=(3,), logprobs=(-0.5,)
    )
    return Rollout(
        task_id=task, sample_index=sample, turns=(turn,), score=Score(value=1.0), output="x", **fields
    )


def result(**fields):
    fields = {
        "run_id": "a-s0",
        "arm": "a",
        "repeat": 0,
        "seed": 7,
        "status": "completed",
        "identity": "i",
        **fields,
    }
    return ArmResult(**fields)


def header(line):
    return line["attempt"], line["step"], line["seq"]


def test_it_is_a_recorder(record):
    recorder: Recorder = record
    assert recorder is record


def test_a_new_run_has_its_facts_and_its_hypothesis(record):
    facts = record.facts
    assert (facts["format"], facts["run_id"], facts["arm"], facts["seed"]) == (1, "a-s0", "a", 7)
    assert facts["attempts"] == []
    assert (record.directory / "hypothesis.md").read_text(encoding="utf-8") == "A helps.\n"


def test_nothing_is_recorded_before_an_attempt_was_started(record):
    with pytest.raises(StoreError, match="no attempt was started"):
        record.metrics(1, {"loss": 1.0})


def test_every_record_has_attempt_step_and_seq(record):
    record.start_attempt()
    record.intent(1, "b1", ("r1", "r2"))
    record.metrics(1, {"loss": 0.5})
    record.done(1, "b1")
    record.rollout(1, rollout(), phase="validation", benchmark="faq")
    log = record_logger(record, LogSettings())
    with context(step=1):
        log.info("step.finished")
    folder = record.checkpoints.begin(1)
    record.checkpoints.commit(folder, step=1, attempt=record.attempt, manifest={})
    files = ["journal.jsonl", "training/metrics.jsonl", "validation/rollouts.jsonl", "run.log.jsonl"]
    lines = [line for name in [*files, "checkpoints.jsonl"] for line in read_jsonl(record.directory / name)]
    assert sorted(map(header, lines)) == [(1, 1, seq) for seq in range(6)]
    assert all(line["time"] for line in lines)


def test_metrics_have_a_folder_for_each_phase(record):
    record.start_attempt()
    for phase in ("training", "validation", "test"):
        record.metrics(3, {"faq.pass@1": 0.25}, phase=phase)
        (line,) = record.read_metrics(phase)
        assert (line["step"], line["values"]) == (3, {"faq.pass@1": 0.25})
        assert (record.directory / phase / "metrics.jsonl").exists()
    with pytest.raises(StoreError, match="unknown phase 'val'; use one of training, validation, test"):
        record.metrics(3, {}, phase="val")


def test_metrics_may_be_called_like_the_records_own_keys(record):
    record.start_attempt()
    record.metrics(3, {"step": 1.0, "attempt": 2.0})
    (line,) = record.read_metrics()
    assert (line["step"], line["values"]) == (3, {"step": 1.0, "attempt": 2.0})


def test_a_metric_that_is_not_finite_is_null_and_named(record):
    record.start_attempt()
    record.metrics(1, {"loss": math.nan, "norm": math.inf, "ok": 1.0})
    record.metrics(2, {"loss": 1.0})
    first, second = record.read_metrics()
    assert first["values"] == {"loss": None, "norm": None, "ok": 1.0}
    assert first["not_finite"] == {"loss": "nan", "norm": "inf"}
    assert "not_finite" not in second


def test_metrics_of_numpy_are_numbers(record):
    import numpy as np

    record.start_attempt()
    record.metrics(1, {"loss": np.float32(0.5), "count": np.int64(3), "bad": np.float32("nan")})
    (line,) = record.read_metrics()
    assert line["values"] == {"loss": 0.5, "count": 3, "bad": None}


def test_rollouts_come_back_with_their_token_ids(record):
    record.start_attempt()
    given = rollout(policy_version=4)
    record.rollout(5, given, phase="test", benchmark="faq", group=2)
    (line,) = record.read_rollouts("test")
    assert rollout_from_tree(line["rollout"]) == given
    assert line["facts"] == {"benchmark": "faq", "group": 2}
    assert header(line) == (1, 5, 0)


def test_what_is_said_stays_and_what_is_secret_goes(record):
    record.start_attempt()
    record.rollout(
        1,
        Rollout(
            task_id="t",
            sample_index=0,
            output="see https://me:word@host.test",
            error="401 from https://me:pa55word@host.test with sk-canary-123456",
            score=NoScore(reason="POST https://me:pa55word@judge.test failed"),
            metadata={"headers": {"Authorization": "Basic Zm9v"}},
        ),
    )
    text = (record.directory / "training" / "rollouts.jsonl").read_text(encoding="utf-8")
    assert "https://me:word@host.test" in text
    for secret in ("pa55word", "canary", "Zm9v"):
        assert secret not in text


@pytest.mark.parametrize(
    ("keep", "steps"),
    [(KeepRollouts(), [1, 2, 3, 4]), (KeepRollouts(every=2), [2, 4]), (KeepRollouts(every=0), [])],
)
def test_which_training_rollouts_are_kept(record, keep, steps):
    record.keep_rollouts = keep
    record.start_attempt()
    for step in (1, 2, 3, 4):
        record.rollout(step, rollout())
        record.rollout(step, rollout(), phase="validation", benchmark="faq")
    assert [line["step"] for line in record.read_rollouts()] == steps
    assert len(list(record.read_rollouts("validation"))) == 4


def test_a_share_keeps_whole_groups_and_the_same_ones_each_time():
    keep = KeepRollouts(share=0.3)
    kept = {
        (task, sample)
        for task in range(300)
        for sample in range(3)
        if keep.keeps(1, rollout(f"t{task}", sample))
    }
    tasks = {task for task, _ in kept}
    assert len(kept) == 3 * len(tasks)
    assert 60 < len(tasks) < 120
    assert all(keep.keeps(1, rollout(f"t{task}", 0)) for task in tasks)


def test_failed_rollouts_are_kept_unless_told_otherwise():
    failed = rollout(error="crashed")
    assert KeepRollouts(every=0).keeps(1, failed)
    assert not KeepRollouts(every=0, errors=False).keeps(1, failed)


def test_attempts_are_listed_with_parent_and_reason(record):
    record.start_attempt()
    record.start_attempt("resume", parent=1, from_step=100)
    facts = record.facts["attempts"]
    assert [(each["n"], each["parent"], each["from_step"], each["reason"]) for each in facts] == [
        (1, None, 0, "start"),
        (2, 1, 100, "resume"),
    ]
    assert record.facts["arm"] == "a"
    with pytest.raises(StoreError, match="attempt 9 of a-s0 doesn't exist"):
        record.start_attempt("resume", parent=9)


def test_steps_that_a_crash_made_twice_are_read_once(record):
    record.start_attempt()
    for step in range(1, 8):
        record.intent(step, f"b{step}", ())
        record.metrics(step, {"loss": 1.0})
        record.done(step, f"b{step}")
    again = RunRecord(record.directory)
    again.start_attempt("resume", parent=1, from_step=5)
    for step in range(6, 9):
        again.intent(step, f"b{step}", ())
        again.metrics(step, {"loss": 2.0})
        again.done(step, f"b{step}")
    again.close()
    lines = list(again.read_metrics())
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert [line["values"]["loss"] for line in lines] == [1.0] * 5 + [2.0] * 3
    assert [line["step"] for line in again.read_journal() if line["event"] == "done"] == list(range(1, 9))
    assert len(list(read_jsonl(record.directory / "training" / "metrics.jsonl"))) == 10


def test_an_evaluation_that_was_cut_off_is_read_once(record):
    record.start_attempt()
    record.rollout(2, rollout("t1"), phase="validation", benchmark="faq")
    record.rollout(2, rollout("t1"), phase="validation", benchmark="other")
    second = RunRecord(record.directory)
    second.start_attempt("resume", parent=1, from_step=4)
    for task in ("t1", "t2"):
        second.rollout(2, rollout(task), phase="validation", benchmark="faq")
    second.close()
    found = [
        (line["attempt"], line["facts"]["benchmark"], line["rollout"]["task_id"])
        for line in second.read_rollouts("validation")
    ]
    assert found == [(1, "other", "t1"), (2, "faq", "t1"), (2, "faq", "t2")]


def test_a_new_attempt_tidies_up_after_a_killed_one(record):
    record.start_attempt()
    torn = record.checkpoints.begin(10)
    (record.directory / ".run.json.1-abc.tmp").write_text("half", encoding="utf-8")
    second = RunRecord(record.directory)
    second.start_attempt("resume", parent=1)
    assert not torn.exists()
    assert list(record.directory.glob(".*")) == []


def test_a_torn_line_is_closed_off_by_the_next_attempt(record):
    record.start_attempt()
    record.metrics(1, {"loss": 1.0})
    path = record.directory / "training" / "metrics.jsonl"
    with path.open("ab") as stream:
        stream.write(b'{"attempt":1,"step":2,"se')
    second = RunRecord(record.directory)
    second.start_attempt("resume", parent=1, from_step=1)
    second.metrics(2, {"loss": 2.0})
    second.close()
    assert [line["step"] for line in second.read_metrics()] == [1, 2]


def test_facts_are_added_and_secrets_taken_out(record):
    record.note(data={"fingerprint": "sha256:a"}, backend={"api_key": "literal"})
    record.note(blas="openblas")
    assert record.facts["data"] == {"fingerprint": "sha256:a"}
    assert record.facts["backend"] == {"api_key": "[redacted]"}
    assert record.facts["blas"] == "openblas"


def test_a_result_is_written_with_every_field(record):
    assert record.read_result() is None
    given = result(run=RunResult(status="completed", steps=3, metrics={"loss": 0.5}))
    record.write_result(given)
    tree = record.read_result()
    validate_result(tree, "run_result")
    assert read_as(ArmResult, tree) == given
    assert tree["failure"] is None


def test_a_final_metric_that_is_not_finite_is_a_warning(record):
    record.write_result(
        result(run=RunResult(status="failed", steps=3, metrics={"loss": math.nan, "lr": 0.1}))
    )
    tree = record.read_result()
    validate_result(tree, "run_result")
    assert tree["run"]["metrics"] == {"lr": 0.1}
    assert tree["run"]["warnings"] == ["metric 'loss' wasn't finite at the end"]


def test_a_conclusion_is_text(record):
    record.write_conclusion("It did, says https://me:pa55word@host.test")
    text = (record.directory / "conclusion.md").read_text(encoding="utf-8")
    assert text == "It did, says https://[redacted]@host.test\n"


ROWS = [{"prompt": "a", "completion": "é\u2028"}, {"prompt": "b", "completion": "c"}]


def dataset() -> MaterializedDataset:
    return MaterializedDataset.from_rows(ROWS, "chat")


def test_training_data_is_a_link_to_what_the_cache_holds_once(record, tmp_path):
    cache = DatasetCache(tmp_path / "cache")
    other = RunRecord(tmp_path / "runs" / "b-s0")
    other.create("b-s0")
    assert record.training_data() is None
    entries = [keep_and_link(each, dataset(), cache) for each in (record, other, record)]
    assert entries[0] == entries[1] == entries[2]
    path = record.training_data()
    assert path == record.directory / "data" / "training_data.jsonl"
    assert path.samefile(entries[0].path)
    assert path.samefile(other.training_data())
    assert list(read_jsonl(path)) == ROWS


@pytest.mark.parametrize("memory_limit", [10, 10_000], ids=["in a file", "in memory"])
def test_the_rows_are_kept_by_the_bytes_of_their_fingerprint_and_written_once(
    record, tmp_path, monkeypatch, memory_limit
):
    rows = MaterializedDataset.from_rows(ROWS, "chat", spool_dir=tmp_path, memory_limit=memory_limit)
    entry = keep_and_link(record, rows, DatasetCache(tmp_path / "cache"))
    assert entry.content_hash == rows.fingerprint == file_digest(entry.path)
    assert (entry.row_count, entry.size) == (2, entry.path.stat().st_size)
    rows.close()
    assert list(entry.rows()) == ROWS
    monkeypatch.setattr(MaterializedDataset, "save", None)  # nobody needs to write them again
    again = keep_and_link(record, dataset(), DatasetCache(tmp_path / "cache"))
    assert again == entry


def test_where_links_fail_a_pointer_says_where_the_rows_are(record, tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    entry = keep_and_link(record, dataset(), DatasetCache(tmp_path / "cache"))
    names = sorted(path.name for path in (record.directory / "data").iterdir())
    assert names == ["training_data.pointer.json"]
    assert record.training_data() == entry.path.resolve()
    moved = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    path = RunRecord(moved / "runs" / "a-s0").training_data()
    assert list(read_jsonl(path)) == ROWS


def test_threads_number_their_records_without_a_gap(record):
    record.start_attempt()

    def work():
        for step in range(100):
            record.metrics(step, {"loss": 1.0})
            record.rollout(step, rollout(), phase="test")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sequences = [
        [line["seq"] for line in read_jsonl(record.directory / "training" / "metrics.jsonl")],
        [line["seq"] for line in read_jsonl(record.directory / "test" / "rollouts.jsonl")],
    ]
    assert sequences == [sorted(each) for each in sequences]
    assert sorted(sequences[0] + sequences[1]) == list(range(800))


def test_a_full_disk_is_told_and_what_follows_is_recorded(record, monkeypatch):
    record.start_attempt()
    record.metrics(1, {"loss": 1.0})
    real = os.write

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match=r"metrics\.jsonl: No space left.*free some space"):
        record.metrics(2, {"loss": 1.0})
    monkeypatch.setattr(os, "write", real)
    record.metrics(2, {"loss": 1.0})
    assert [header(line) for line in record.read_metrics()] == [(1, 1, 0), (1, 2, 1)]


def test_the_log_follows_its_settings_and_names_the_run(tmp_path):
    import io

    stream = io.StringIO()
    record, settings = RunRecord(tmp_path), configure(stream=stream, console_level="warning")
    record.create("a/b-s0")
    record.start_attempt()
    log = record_logger(record, settings, arm="a/b")
    log.info("run.started")
    log.warning("run.slowed")
    lines = list(read_jsonl(record.log_path))
    assert [(line["run_id"], line["arm"], line["event"]) for line in lines] == [
        ("a/b-s0", "a/b", "run.started"),
        ("a/b-s0", "a/b", "run.slowed"),
    ]
    assert "run.started" not in stream.getvalue()


def test_a_record_that_is_not_there_is_named(tmp_path):
    record = RunRecord(tmp_path / "none")
    assert not record.exists
    with pytest.raises(StoreError, match=r"can't read .*run\.json"):
        _ = record.facts


def test_files_appear_only_when_there_is_something_in_them(record):
    record.start_attempt()
    assert sorted(path.name for path in Path(record.directory).iterdir()) == ["hypothesis.md", "run.json"]


def scoring(step, value=0.5, **fields):
    metrics = {"mean": MetricValue(value=value, low=0.1, high=0.9, n=2)}
    rewards = {"t2": (1.0,), "t1": (0.1 + 0.2,)}
    facts = {"benchmark": "val", "split": "val", "status": "completed", **fields}
    return EvaluationResult(step=step, metrics=metrics, task_rewards=rewards, **facts)


def test_a_scoring_is_kept_whole_and_comes_back_as_it_was(record):
    record.start_attempt()
    given = [scoring(0), scoring(2, model="api"), scoring(2)]
    for each in given:
        record.evaluation(each)
    found = [read_as(EvaluationResult, line["evaluation"]) for line in record.read_evaluations()]
    assert found == given
    assert [list(each.task_rewards) for each in found] == [["t2", "t1"]] * 3


def test_of_scorings_the_live_ones_count_and_of_one_that_was_made_again_the_last(record):
    record.start_attempt()
    for step in (0, 2, 4):
        record.evaluation(scoring(step, value=0.1))
    record.start_attempt("resume", parent=1, from_step=2)
    record.evaluation(scoring(2, value=0.2))
    live = [
        (line["step"], line["evaluation"]["metrics"]["mean"]["value"]) for line in record.read_evaluations()
    ]
    assert live == [(0, 0.1), (2, 0.2)]


@pytest.fixture
def synced(monkeypatch):
    """The files and folders that were synced, in order, and how long each was then."""
    seen, real = [], os.fsync

    def fsync(descriptor):
        real(descriptor)
        seen.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


def written(record):
    record.start_attempt()
    record.intent(1, "b1", ("r1",))
    record.done(1, "b1")
    record.metrics(1, {"loss": 0.5})
    record.rollout(1, rollout(), phase="validation", benchmark="faq")
    names = ("journal.jsonl", "training/metrics.jsonl", "validation/rollouts.jsonl")
    return [record.directory / name for name in names]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_lines_reach_the_disk_before_a_checkpoint_is_one(record, synced):
    paths = written(record)
    folder = record.checkpoints.begin(1)
    synced.clear()
    record.checkpoints.commit(folder, step=1, attempt=1, manifest={})
    order = [path for path, _ in synced]
    for path in paths:
        assert (str(path), path.stat().st_size) in synced
        assert order.index(str(path)) < order.index(str(record.directory / "checkpoints"))
        assert str(path.parent) in order
    synced.clear()
    record.metrics(2, {"loss": 0.4})
    record.checkpoints.commit(record.checkpoints.begin(2), step=2, attempt=1, manifest={})
    again = [path for path, _ in synced if path in set(map(str, paths))]
    assert again == [str(paths[1])]  # what is on the disk already isn't synced again


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_lines_reach_the_disk_before_a_result_also_of_files_that_were_closed(record, synced):
    paths = written(record)
    record.close()
    synced.clear()
    record.write_result(result(attempt=1))
    order = [path for path, _ in synced]
    assert all(
        order.index(str(path)) < len(order) - 1 and (str(path), path.stat().st_size) in synced
        for path in paths
    )
    assert order[-1] == str(record.directory)
