"""`shuffle`, `sample`, `split` and `mix`: what is drawn, and from which seed."""

import json
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys import Registry, use_registry
from evsys.errors import ConfigError, DataError
from evsys_runtime.data import pipeline
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.data.words import fold, whole
from evsys_std.transforms import Mix, Sample, Shuffle, Split
from evsys_std.transforms.mix import MixSource

ROWS = [{"n": n, "group": n % 10} for n in range(200)]
REGISTRY = Registry()


def numbers(rows):
    return [row["n"] for row in rows]


# --- shuffle ----------------------------------------------------------------------------------------------------


def test_all_rows_come_in_another_order_that_the_seed_decides():
    first = numbers(Shuffle(seed=1)(ROWS))
    assert sorted(first) == list(range(200))
    assert first != sorted(first)
    assert numbers(Shuffle(seed=1)(ROWS)) == first
    assert numbers(Shuffle(seed=2)(ROWS)) != first


def test_every_place_is_as_likely_as_any_other():
    places = Counter(numbers(Shuffle(seed=seed)(ROWS[:4])).index(0) for seed in range(2000))
    assert all(400 < count < 600 for count in places.values())


def test_many_rows_wait_in_a_file_that_is_gone_afterwards(tmp_path):
    def source():
        for n in range(6000):
            yield {"n": n, "text": "x" * 1500}

    with use_scope(DataScope(spool_dir=tmp_path)):
        tracemalloc.start()
        try:
            stream = Shuffle(seed=1)(source())
            next(stream)
            assert len(list(tmp_path.iterdir())) == 1
            assert len({row["n"] for row in stream}) == 5999
            assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
        finally:
            tracemalloc.stop()
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_shuffle_leaves_no_file(tmp_path):
    def source():
        for _ in range(6000):
            yield {"text": "x" * 1500}
        raise OSError("gone")

    with use_scope(DataScope(spool_dir=tmp_path)), pytest.raises(OSError, match="gone"):
        list(Shuffle(seed=1)(source()))
    assert list(tmp_path.iterdir()) == []


def test_the_runs_seed_is_used_where_none_is_given():
    def order(run_seed, **params):
        stages = pipeline.build_stages([{"kind": "shuffle", "params": params}], REGISTRY, seed=run_seed)
        return numbers(pipeline.apply(ROWS, stages))

    assert order(1) == order(1) != order(2)
    assert order(1, seed=5) == order(2, seed=5)


# --- sample -----------------------------------------------------------------------------------------------------


def test_n_rows_are_drawn_in_their_order_and_the_rest_counted():
    transform = Sample(n=20, seed=1)
    drawn = numbers(transform(ROWS))
    assert len(drawn) == len(set(drawn)) == 20
    assert drawn == sorted(drawn)
    assert transform.dropped == {"not drawn": 180}
    assert numbers(Sample(n=20, seed=2)(ROWS)) != drawn
    assert numbers(Sample(n=500, seed=1)(ROWS)) == list(range(200))


def test_every_row_is_as_likely_to_be_drawn():
    drawn = Counter(n for seed in range(2000) for n in numbers(Sample(n=2, seed=seed)(ROWS[:10])))
    assert all(320 < drawn[n] < 480 for n in range(10))


def test_a_fraction_is_drawn_one_row_at_a_time():
    transform = Sample(fraction=0.25, seed=3)
    drawn = numbers(transform(ROWS))
    assert 30 < len(drawn) < 70
    assert transform.dropped["not drawn"] == 200 - len(drawn)
    assert transform.streaming
    assert not Sample(n=3).streaming


@pytest.mark.parametrize(
    "params", [{}, {"n": 3, "fraction": 0.5}, {"n": 0}, {"fraction": 0}, {"fraction": 1.5}]
)
def test_sample_needs_one_sensible_size(params):
    with pytest.raises(ConfigError, match=r"give either|n'|fraction"):
        REGISTRY.build("transform", "sample", params)


# --- split ------------------------------------------------------------------------------------------------------

PARTS = {"train": 0.8, "val": 0.1, "test": 0.1}


@pytest.mark.parametrize("method", ["hash", "ratio"])
def test_parts_cover_all_rows_and_never_overlap(method):
    parts = {keep: numbers(Split(parts=PARTS, keep=keep, method=method)(ROWS)) for keep in PARTS}
    assert sorted(n for part in parts.values() for n in part) == list(range(200))
    assert all(found == sorted(found) for found in parts.values())
    assert 140 <= len(parts["train"]) <= 180


def test_ratio_meets_the_shares_exactly_and_counts_the_rest_by_part():
    transform = Split(parts=PARTS, keep="val", method="ratio")
    assert len(numbers(transform(ROWS))) == 20
    assert transform.dropped == {"in part 'train'": 160, "in part 'test'": 20}


def test_by_hash_a_row_stays_in_its_part_whatever_else_is_there():
    part = set(numbers(Split(parts=PARTS, keep="train")(ROWS)))
    assert set(numbers(Split(parts=PARTS, keep="train")(ROWS[50:][::-1]))) == part - set(range(50))


def test_by_hash_rows_with_one_key_stay_together():
    part = list(Split(parts={"a": 0.5, "b": 0.5}, keep="a", key="group")(ROWS))
    assert len(part) == 20 * len({row["group"] for row in part})
    lacking = [{"n": n} for n in range(100)]
    assert 20 < len(list(Split(parts={"a": 0.5, "b": 0.5}, keep="a", key="group")(lacking))) < 80


CONTENTS = st.lists(
    st.sampled_from(["Tea", "tea ", "t\u200bea", "coffee", "Water", "water.", "milk"]), max_size=40
)


@given(CONTENTS, st.integers(0, 3), st.sampled_from(["hash", "ratio"]), st.booleans())
def test_equal_contents_fall_into_one_part_and_no_row_is_lost(contents, seed, method, keyed):
    rows = [{"id": n, "doc_id": f"d{n}", "said": {"text": text}} for n, text in enumerate(contents)]
    params = {"parts": {"a": 0.5, "b": 0.3, "c": 0.2}, "method": method, "seed": seed}
    if keyed:
        params["key"] = "said.text"
    found = {keep: list(Split(**params, keep=keep)(rows)) for keep in "abc"}
    assert sorted(row["id"] for part in found.values() for row in part) == list(range(len(rows)))
    said = [{whole(fold(row["said"]["text"])) for row in part} for part in found.values()]
    assert sum(map(len, said)) == len(set().union(*said))


def test_copies_stay_together_and_shares_are_met_as_far_as_they_allow():
    rows = [{"id": n, "text": f"text {n % 16}"} for n in range(96)]
    params = {"parts": {"train": 0.75, "held_out": 0.25}, "method": "ratio"}
    train, held_out = (list(Split(**params, keep=keep)(rows)) for keep in ("train", "held_out"))
    assert (len(train), len(held_out)) == (72, 24)
    assert not {row["text"] for row in train} & {row["text"] for row in held_out}


def test_each_value_of_a_column_is_divided_in_the_same_shares():
    rows = [{"n": n, "label": "rare" if n % 10 == 0 else "common"} for n in range(200)]
    params = {"parts": PARTS, "method": "ratio", "stratify": "label"}
    for keep, share in PARTS.items():
        counts = Counter(row["label"] for row in Split(**params, keep=keep)(rows))
        assert counts == {"rare": round(20 * share), "common": round(180 * share)}


def test_a_split_does_not_follow_the_runs_seed_but_its_own():
    def part(run_seed, **params):
        spec = {"kind": "split", "params": {"parts": PARTS, "keep": "train", **params}}
        return numbers(pipeline.apply(ROWS, pipeline.build_stages([spec], REGISTRY, seed=run_seed)))

    assert part(1) == part(2) != part(1, seed=1)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"parts": {"a": 0.5}, "keep": "a"}, "must make 1, they make 0.5"),
        ({"parts": {"a": 1.5, "b": -0.5}, "keep": "a"}, "must be above 0"),
        ({"parts": {"a": 1.0}, "keep": "b"}, "`keep` names no part; the parts are a"),
        ({"parts": {}, "keep": "b"}, "parts"),
        ({"parts": {"a": 1.0}, "keep": "a", "stratify": "x"}, "`stratify` needs `method: ratio`"),
    ],
)
def test_split_parameters_that_make_no_sense_are_refused(params, problem):
    with pytest.raises(ConfigError, match=problem):
        REGISTRY.build("transform", "split", params)


# --- mix --------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path):
    lines = "\n".join(json.dumps({"n": -n, "question": f"q{n}", "answer": f"a{n}"}) for n in range(1, 31))
    (tmp_path / "old.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "new.csv").write_text("n\nx\n", encoding="utf-8")
    with use_scope(DataScope(project_root=tmp_path)), use_registry(REGISTRY):
        yield tmp_path


def test_rows_of_a_source_come_between_at_their_ratio(project):
    mixed = numbers(Mix(sources=(MixSource(path="old.jsonl", ratio=0.25),), seed=1)(ROWS))
    own = [n for n in mixed if n >= 0]
    assert own == list(range(200))
    assert 30 <= len(mixed) - 200 <= 70
    other = numbers(Mix(sources=(MixSource(path="old.jsonl", ratio=0.25),), seed=2)(ROWS))
    assert other != mixed


def test_a_source_is_used_up_before_it_begins_again_in_another_order(project):
    mixed = numbers(Mix(sources=(MixSource(path="old.jsonl", ratio=1),), seed=1)(ROWS[:60]))
    drawn = [n for n in mixed if n < 0]
    assert sorted(drawn[:30]) == sorted(drawn[30:]) == list(range(-30, 0))
    assert drawn[:30] != drawn[30:]


def test_a_ratio_above_one_adds_several(project):
    sources = (MixSource(path="old.jsonl", ratio=2), MixSource(path="new.csv", ratio=1))
    rows = list(Mix(sources=sources, seed=1)(ROWS[:3]))
    assert [row["n"] == "x" for row in rows].count(True) == 3
    assert len(rows) == 3 + 6 + 3


def test_a_source_can_go_through_transforms_of_its_own(project):
    spec = {
        "sources": [
            {
                "path": "old.jsonl",
                "ratio": 1,
                "transforms": [
                    {"kind": "filter", "params": {"where": [{"column": "n", "op": ">=", "value": -3}]}},
                    {"kind": "jsonl_to_chat"},
                ],
            }
        ]
    }
    rows = list(REGISTRY.build("transform", "mix", spec)(ROWS[:3]))
    asked = [row["messages"][0]["content"] for row in rows if "messages" in row]
    assert sorted(asked) == ["q1", "q2", "q3"]
    assert all(row["n"] >= -3 for row in rows)


def test_a_missing_source_is_named(project):
    with pytest.raises(DataError, match=r"no such file"):
        list(Mix(sources=(MixSource(path="gone.jsonl", ratio=1),))(ROWS))


def test_mix_needs_a_source():
    with pytest.raises(ConfigError, match="sources"):
        REGISTRY.build("transform", "mix", {"sources": []})
