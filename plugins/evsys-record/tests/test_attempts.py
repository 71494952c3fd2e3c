import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.errors import StoreError
from evsys_record.attempts import Attempt, lineage, live, read_live
from evsys_record.jsonl import JsonlWriter


def record(attempt, step, **facts):
    return {"attempt": attempt, "step": step, **facts}


def steps(attempt, first, last):
    return [record(attempt, step) for step in range(first, last + 1)]


def test_a_crash_at_154_resumed_from_100_shows_each_step_once():
    records = steps(1, 1, 154) + steps(2, 101, 200)
    attempts = [Attempt(n=1), Attempt(n=2, parent=1, from_step=100, reason="resume")]
    kept = list(live(records, attempts))
    assert [line["step"] for line in kept] == list(range(1, 201))
    assert [line["attempt"] for line in kept] == [1] * 100 + [2] * 100


def test_an_attempt_that_starts_over_leaves_the_first_behind():
    records = steps(1, 1, 10) + steps(2, 1, 5)
    kept = list(live(records, [Attempt(n=1), Attempt(n=2)]))
    assert kept == steps(2, 1, 5)


def test_a_branch_after_a_collapse_leaves_the_collapsed_steps_behind():
    attempts = [
        Attempt(n=1),
        Attempt(n=2, parent=1, from_step=50, reason="resume"),
        Attempt(n=3, parent=1, from_step=20, reason="branch"),
    ]
    records = steps(1, 1, 60) + steps(2, 51, 90) + steps(3, 21, 40)
    kept = list(live(records, attempts))
    assert [(line["attempt"], line["step"]) for line in kept] == [
        *((1, step) for step in range(1, 21)),
        *((3, step) for step in range(21, 41)),
    ]


def test_going_back_behind_an_earlier_resume_bounds_the_grandparent_too():
    attempts = [
        Attempt(n=1),
        Attempt(n=2, parent=1, from_step=100),
        Attempt(n=3, parent=2, from_step=50),
    ]
    assert lineage(attempts) == {3: None, 2: 50, 1: 50}


def test_without_attempts_everything_is_live():
    assert list(live(steps(1, 1, 3), [])) == steps(1, 1, 3)


def test_records_without_a_step_belong_to_their_attempt():
    attempts = [Attempt(n=1), Attempt(n=2, parent=1, from_step=5), Attempt(n=3)]
    records = [record(1, None), record(3, None)]
    assert list(live(records, attempts)) == [record(3, None)]
    assert list(live(records[:1], attempts[:2])) == [record(1, None)]


def test_a_missing_parent_and_a_circle_are_errors():
    with pytest.raises(StoreError, match="attempt 7"):
        lineage([Attempt(n=1, parent=7)])
    with pytest.raises(StoreError, match="attempt"):
        lineage([Attempt(n=1, parent=2), Attempt(n=2, parent=1)])


def test_live_streams():
    def endless():
        step = 0
        while True:
            step += 1
            yield record(1, step)

    assert next(live(endless(), [Attempt(n=1)]))["step"] == 1


def write(path, records):
    with JsonlWriter(path) as writer:
        for line in records:
            writer.write(line)


def test_an_evaluation_scored_again_after_a_resume_counts_once(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    attempts = [Attempt(n=1), Attempt(n=2, parent=1, from_step=100)]
    cut_off = [record(1, 50, task=task, score=0) for task in "abc"]
    complete = [record(1, 25, task=task, score=0) for task in "abcd"]
    again = [record(2, 50, task=task, score=1) for task in "abcd"]
    write(path, complete + cut_off + again + [record(2, 150, task="a", score=2)])
    kept = list(read_live(path, attempts, lambda line: (line["step"], line["task"])))
    assert kept == complete + again + [record(2, 150, task="a", score=2)]


def test_one_attempt_may_repeat_a_key(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [record(1, 1, value=1), record(1, 1, value=2)]
    write(path, lines)
    assert list(read_live(path, [Attempt(n=1)], lambda line: line["step"])) == lines
    attempts = [Attempt(n=1), Attempt(n=2, parent=1, from_step=1)]
    assert list(read_live(path, attempts, lambda line: line["step"])) == lines


def test_a_missing_file_has_no_live_records(tmp_path):
    assert list(read_live(tmp_path / "none", [Attempt(n=1)], lambda line: line["step"])) == []


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=6))
@settings(deadline=None)
def test_however_often_a_run_crashes_every_step_is_live_once(crashes):
    """Each attempt runs some steps, dies, and the next goes on from a checkpoint that lies in what was live."""
    attempts, records, reached = [], [], 0
    for number, (length, back) in enumerate(crashes, start=1):
        start = max(0, reached - back)
        attempts.append(Attempt(n=number, parent=number - 1 if number > 1 else None, from_step=start))
        records += steps(number, start + 1, start + length)
        reached = start + length
    kept = list(live(records, attempts))
    assert [line["step"] for line in kept] == list(range(1, reached + 1))
    assert kept[-1]["attempt"] == len(crashes)
