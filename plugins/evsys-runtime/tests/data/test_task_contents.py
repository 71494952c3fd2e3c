"""Benchmarks are compared by what their tasks ask, of many tasks by a sample that both draw alike."""

import random

import pytest

from evsys.types import HarborTask, Message
from evsys_record.task_contents import TaskContents, share_in_common
from evsys_runtime.data.task_contents import SKETCH, task_contents


def tasks(questions, ids="t"):
    return [HarborTask(task_id=f"{ids}{i}", instruction=text) for i, text in enumerate(questions)]


def questions(first, last):
    return [f"What is {n} + {n * n}?" for n in range(first, last)]


def test_ids_order_case_white_space_and_system_messages_dont_count():
    plain = task_contents(tasks(questions(0, 30)))
    said = [
        HarborTask(
            task_id=f"x{i}",
            instruction=(
                Message(role="system", content="Be short."),
                Message(role="user", content=f" {text.upper()}\n"),
            ),
            metadata={"level": i},
        )
        for i, text in enumerate(reversed(questions(0, 30)))
    ]
    assert task_contents(said) == plain
    assert plain.tasks == 30


def test_symbols_and_numbers_count():
    plus, minus = (task_contents(tasks([f"What is {n} {sign} 1?" for n in range(20)])) for sign in "+-")
    assert share_in_common(plus, minus) == 0.0


def test_one_question_under_many_ids_is_one_task():
    assert task_contents(tasks(["Say a"] * 12)).tasks == 1


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ((0, 100), (0, 100), 1.0),
        ((0, 100), (50, 150), 0.5),
        ((0, 100), (100, 200), 0.0),
        ((0, 100), (0, 20_000), 1.0),
        ((0, 2000), (1000, 3000), 0.5),
        ((0, 5000), (2500, 20_000), 0.5),
        ((0, 5000), (5000, 10_000), 0.0),
    ],
)
def test_the_share_is_that_of_the_smaller_benchmark_and_an_estimate_of_large_ones(one, other, share):
    found = share_in_common(task_contents(tasks(questions(*one))), task_contents(tasks(questions(*other))))
    assert found == pytest.approx(share, abs=0.0 if max(*one, *other) <= SKETCH else 0.08)


def test_the_sketch_survives_json_and_doesnt_depend_on_the_order():
    asked = questions(0, 3000)
    contents = task_contents(tasks(asked))
    assert len(contents.sketch) == SKETCH
    assert TaskContents.of_tree(contents.as_json) == contents
    random.Random(1).shuffle(asked)
    assert task_contents(tasks(asked)) == contents
