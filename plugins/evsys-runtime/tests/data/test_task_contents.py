"""Benchmarks are compared by what their tasks ask, of many tasks by a sample that both draw alike."""

import random

import pytest

from evsys.types import HarborTask, Message
from evsys_record.signatures import MINIMA, RANK_DIGITS, SIGNATURES
from evsys_record.task_contents import TaskContents, is_alike, share_in_common
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


WORDS = [
    f"{one}{other}" for one in "ba co du fe gi ha ji ko lu me".split() for other in "bel con dur fen".split()
]


def sentences(seed, count, words=12):
    rng = random.Random(seed)
    return [" ".join(f"{rng.choice(WORDS)}{rng.randrange(40)}" for _ in range(words)) for _ in range(count)]


def sums(seed, count):
    rng = random.Random(seed)
    return [f"What is {rng.randrange(100)} + {rng.randrange(100)}?" for _ in range(count)]


def with_another_word(text):
    first, *others = text.split()
    return " ".join([first, "entirely", *others[1:]])


@pytest.mark.parametrize("count", [12, 200, 2000])
@pytest.mark.parametrize(
    "reworded",
    [
        with_another_word,
        lambda text: f"Please answer: {text} Thank you!",
        lambda text: f"({len(text)}) {text} so there",
    ],
)
def test_a_benchmark_is_recognised_although_every_task_was_reworded(count, reworded):
    asked = sentences(1, count)
    one, other = task_contents(tasks(asked)), task_contents(tasks(map(reworded, asked)))
    assert share_in_common(one, other) < 0.5
    assert is_alike(one, other)
    assert is_alike(task_contents(tasks(asked[: count // 2])), other)


def test_another_wording_around_all_tasks_is_the_same_benchmark():
    asked = sums(1, 100)
    said = [text.replace("What is", "Please compute") for text in asked]
    assert is_alike(task_contents(tasks(asked)), task_contents(tasks(said)))


@pytest.mark.parametrize("count", [12, 200, 2000])
def test_other_tasks_are_another_benchmark(count):
    assert not is_alike(task_contents(tasks(sentences(1, count))), task_contents(tasks(sentences(2, count))))


def test_other_tasks_of_the_same_template_are_another_benchmark():
    assert not is_alike(task_contents(tasks(sums(1, 100))), task_contents(tasks(sums(2, 100))))
    around = "Sort this message into one of the groups refund, delivery and others, and answer with the group only: {}"
    one, other = ([around.format(text) for text in sentences(seed, 100, words=6)] for seed in (1, 2))
    assert not is_alike(task_contents(tasks(one)), task_contents(tasks(other)))


def test_signatures_are_those_of_a_sample_and_survive_json():
    asked = sentences(1, 2 * SIGNATURES)
    contents = task_contents(tasks(asked))
    assert len(contents.signatures) == SIGNATURES
    assert {len(each) for each in contents.signatures} == {RANK_DIGITS + 2 * MINIMA}
    assert TaskContents.of_tree(contents.as_json).signatures == contents.signatures
    random.Random(1).shuffle(asked)
    assert task_contents(tasks(asked)).signatures == contents.signatures


def test_contents_of_earlier_versions_are_compared_by_equal_tasks_alone():
    asked = sentences(1, 30)
    contents = task_contents(tasks(asked))
    older = TaskContents.of_tree(
        {key: value for key, value in contents.as_json.items() if key != "signatures"}
    )
    assert older == contents
    assert is_alike(older, contents)
    assert not is_alike(older, task_contents(tasks(map(with_another_word, asked))))
