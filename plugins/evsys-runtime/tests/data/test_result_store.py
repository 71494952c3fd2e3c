"""The file of scored rollouts."""

import json
import subprocess
import sys
import threading

import pytest

from evsys.errors import StoreError
from evsys_runtime.data.result_store import ResultStore, StoredRollout


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "results")


def keep(store, scoring="s", keys=("a",), *, size=1, benchmark="val", **ingredients):
    rollouts = [StoredRollout(key, json.dumps({"key": key, "text": "x" * size})) for key in keys]
    store.keep(scoring, rollouts, benchmark=benchmark, ingredients=ingredients, run="runs/r")


def test_what_was_kept_comes_back_under_its_scoring_and_key(store):
    keep(store, "one", ("a", "b"))
    keep(store, "two", ("a",))
    assert set(store.rollouts("one")) == {"a", "b"}
    assert store.rollouts("two")["a"] == {"key": "a", "text": "x"}
    assert store.rollouts("three") == {}


def test_nothing_is_written_by_looking(store):
    assert (store.rollouts("s"), store.known("val"), store.info().rollouts, store.clear()) == ({}, [], 0, 0)
    assert not store.path.parent.exists()


def test_a_rollout_that_is_there_stays_as_it_is(store):
    keep(store, keys=("a",))
    store.keep("s", [StoredRollout("a", '{"other": 1}')], benchmark="val", ingredients={}, run="r")
    assert store.rollouts("s") == {"a": {"key": "a", "text": "x"}}
    assert store.info().rollouts == 1


def test_scorings_of_an_entry_are_listed_with_their_ingredients_the_newest_first(store):
    keep(store, "one", seed=1)
    keep(store, "two", seed=2)
    keep(store, "other", benchmark="test")
    assert [(known.id, known.ingredients, known.rollouts) for known in store.known("val")] == [
        ("two", {"seed": 2}, 1),
        ("one", {"seed": 1}, 1),
    ]


def test_beyond_its_size_what_was_of_no_use_for_longest_goes(tmp_path):
    import random

    noise = random.Random(0)
    store = ResultStore(tmp_path, most_bytes=30_000)

    def add(scoring):
        rollout = StoredRollout("a", json.dumps(noise.randbytes(4000).hex()))
        store.keep(scoring, [rollout], benchmark="val", ingredients={}, run="r")

    for scoring in ("one", "two", "three", "four", "five"):
        add(scoring)
    store.rollouts("one")  # of use again
    while "two" in {known.id for known in store.known("val")}:
        add(f"more{noise.random()}")
    kept = {known.id for known in store.known("val")}
    assert "one" in kept
    assert store.info().size <= 30_000


def test_a_scoring_that_is_being_written_is_never_let_go(tmp_path):
    store = ResultStore(tmp_path, most_bytes=10)
    keep(store, "one", size=100)
    assert store.rollouts("one")


def test_clear_forgets_everything(store):
    keep(store, keys=("a", "b"))
    assert store.clear() == 2
    assert (store.rollouts("s"), store.info().scorings) == ({}, 0)


@pytest.mark.parametrize("content", [b"", b"no database" * 1000], ids=["empty", "garbage"])
def test_clearing_makes_a_damaged_file_usable_again(store, content):
    keep(store, "one")
    store.path.write_bytes(content)
    for beside in store.path.parent.glob(f"{store.path.name}-*"):
        beside.unlink()
    assert store.clear() == 0
    keep(store, "two")
    assert set(store.rollouts("two")) == {"a"}


def test_a_damaged_file_is_an_error_that_names_it(store):
    store.path.parent.mkdir()
    store.path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match=r"results\.sqlite can't be used"):
        store.rollouts("s")


def test_a_file_of_a_later_format_is_left_alone(store):
    import sqlite3

    keep(store)
    with sqlite3.connect(store.path) as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(StoreError, match="format 9"):
        keep(store)


def test_several_threads_lose_nothing(store):
    def work(number):
        for index in range(5):
            keep(store, f"s{index}", (f"{number}",))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(set(store.rollouts(f"s{index}")) == {"0", "1", "2", "3"} for index in range(5))


def test_two_processes_lose_nothing(store):
    code = """
import sys
from pathlib import Path
from evsys_runtime.data.result_store import ResultStore, StoredRollout
store = ResultStore(Path(sys.argv[1]))
for index in range(10):
    store.keep("s", [StoredRollout(f"{sys.argv[2]}{index}", "{}")], benchmark="val", ingredients={}, run="r")
"""
    command = [sys.executable, "-c", code, str(store.path.parent)]
    running = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len(store.rollouts("s")) == store.info().rollouts == 20


def test_the_run_that_began_a_scoring_is_known_as_its_maker(store):
    assert store.maker("s") is None
    keep(store)
    store.keep("s", [StoredRollout("b", "{}")], benchmark="val", ingredients={}, run="other")
    assert (store.maker("s"), store.maker("t")) == ("runs/r", None)
