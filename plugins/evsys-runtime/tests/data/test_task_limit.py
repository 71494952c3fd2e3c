"""Which tasks are scored if an entry is limited."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import HarborTask, VerifierSpec
from evsys_runtime.data.task_limit import limit_tasks


def task(number: int, expected: str | None = None, **metadata: str) -> HarborTask:
    verifier = None if expected is None else VerifierSpec(name="exact_match", expected=expected)
    return HarborTask(
        task_id=f"t{number:03d}", instruction=f"ask {number}", verifier=verifier, metadata=metadata
    )


def test_a_limited_benchmark_sorted_by_label_keeps_the_share_of_each_label():
    tasks = [task(n, "refund" if n < 40 else "billing" if n < 60 else "login") for n in range(80)]
    counts = Counter(one.verifier.expected for one in limit_tasks(tasks, 30))
    assert counts == {"refund": 15, "billing": 8, "login": 7} or counts == {
        "refund": 15,
        "billing": 7,
        "login": 8,
    }


def test_breakdown_keys_form_the_groups_where_there_are_some():
    tasks = [task(n, "yes", topic="maths" if n < 90 else "law") for n in range(100)]
    counts = Counter(one.metadata["topic"] for one in limit_tasks(tasks, 20, keys=("topic",)))
    assert counts == {"maths": 18, "law": 2}


def test_a_sample_is_not_the_first_tasks_and_is_the_same_each_time_in_the_order_of_the_file():
    tasks = [task(n, str(n)) for n in range(200)]
    sample = limit_tasks(tasks, 50)
    ids = [one.task_id for one in sample]
    assert len(ids) == 50
    assert ids == sorted(ids)
    assert ids != [one.task_id for one in tasks[:50]]
    assert limit_tasks(tasks, 50) == sample
    shuffled = limit_tasks(tasks[::-1], 50)
    assert {one.task_id for one in shuffled} == set(ids)


def test_the_first_tasks_are_taken_on_request_only():
    tasks = [task(n, str(n)) for n in range(20)]
    assert limit_tasks(tasks, 5, "first") == tasks[:5]
    assert limit_tasks(tasks, 5) != tasks[:5]


@pytest.mark.parametrize("limit", [None, 3, 4])
def test_a_limit_that_leaves_nothing_out_changes_nothing(limit):
    tasks = [task(n) for n in range(3)]
    assert limit_tasks(tasks, limit) == tasks


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6), limit=st.integers(1, 60))
def test_every_group_gets_its_share_within_one_task(sizes, limit):
    tasks = [task(1000 * at + n, topic=str(at)) for at, size in enumerate(sizes) for n in range(size)]
    sample = limit_tasks(tasks, limit, keys=("topic",))
    assert len(sample) == min(limit, len(tasks))
    counts = Counter(one.metadata["topic"] for one in sample)
    for at, size in enumerate(sizes):
        assert abs(counts[str(at)] - size * min(limit, len(tasks)) / len(tasks)) < 1
