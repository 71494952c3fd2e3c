"""Rows of earlier datasets between those of a run's own."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys import Registry
from evsys.errors import DataError
from evsys_runtime.data.load import load_dataset
from evsys_runtime.data.replay import Earlier, Replay


def replayed(own, ratio, *earlier, seed=0):
    """The rows of a replay, each as `<dataset><number>`; dataset 0 is the run's own."""
    sources = [
        Earlier(source=f"d{place}", lineage={}, rows=[{"row": f"{place}.{n}"} for n in range(count)])
        for place, count in enumerate(earlier, 1)
    ]
    replay = Replay(ratio=ratio, earlier=sources, seed=seed)
    rows = [row["row"] for row in replay([{"row": f"0.{n}"} for n in range(own)])]
    return rows, replay


def of(rows, place):
    return [row for row in rows if row.startswith(f"{place}.")]


@given(
    own=st.integers(1, 60), hundredths=st.integers(1, 100), first=st.integers(1, 9), second=st.integers(1, 9)
)
def test_so_many_rows_come_and_the_datasets_take_turns(own, hundredths, first, second):
    rows, _ = replayed(own, hundredths / 100, first, second)
    one, two = of(rows, 1), of(rows, 2)

    assert of(rows, 0) == [f"0.{n}" for n in range(own)]
    assert len(one) + len(two) == own * hundredths // 100
    assert len(one) - len(two) in (0, 1)
    for place, (drawn, count) in enumerate(((one, first), (two, second)), 1):
        times = [Counter(drawn)[f"{place}.{n}"] for n in range(count)]
        assert max(times) - min(times) <= 1  # none comes again before all have come


def test_a_row_stands_behind_the_one_that_it_is_due_for():
    rows, _ = replayed(4, 0.5, 3)
    assert [row[0] for row in rows] == ["0", "0", "1", "0", "0", "1"]


def test_the_seed_decides_which_rows_come_and_the_number_of_datasets_does():
    assert replayed(20, 0.5, 30, seed=1)[0] == replayed(20, 0.5, 30, seed=1)[0]
    assert replayed(20, 0.5, 30, seed=1)[0] != replayed(20, 0.5, 30, seed=2)[0]
    alone, beside = of(replayed(20, 0.5, 30)[0], 1), of(replayed(40, 0.5, 30, 30)[0], 1)
    assert alone != beside


def test_a_dataset_that_is_used_up_begins_again():
    rows, replay = replayed(10, 1.0, 3)
    assert Counter(of(rows, 1)[:9]) == {"1.0": 3, "1.1": 3, "1.2": 3}
    assert replay.lineage == {"replay": 1.0, "seed": 0, "from": [{"drawn": 10}]}


def test_an_earlier_dataset_without_rows_is_an_error():
    with pytest.raises(DataError, match="holds no rows to replay"):
        replayed(2, 0.5, 0)


def loaded(tmp_path, seed=3, **more):
    for name in "ab":
        text = "".join(f'{{"prompt": "{name}{n}", "completion": "x"}}\n' for n in range(8))
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    chat = [{"kind": "jsonl_to_chat"}]
    data = {"path": "b.jsonl", "transforms": chat, **more}
    return load_dataset(data, shape="chat", project_root=tmp_path, registry=Registry(), seed=seed)


def asked(dataset):
    return [dataset[index].messages[0].content for index in range(len(dataset))]


def test_rows_are_replayed_as_they_were_when_they_were_learnt(tmp_path):
    half = [{"kind": "sample", "params": {"n": 4}}, {"kind": "jsonl_to_chat"}]
    learnt = loaded(tmp_path, path="a.jsonl", transforms=half)
    replay = {"ratio": 1.0, "datasets": [{"path": "a.jsonl", "transforms": half}]}
    dataset = loaded(tmp_path, replay=replay)

    drawn = [text for text in asked(dataset) if text.startswith("a")]
    assert Counter(drawn) == dict.fromkeys(asked(learnt), 2)  # the very rows, of all eight
    assert dataset.lineage[-1]["from"][0] == {
        "source": "file",
        "path": "a.jsonl",
        "transforms": list(learnt.lineage[1:]),
        "drawn": 8,
    }


def test_which_rows_came_is_part_of_the_fingerprint(tmp_path):
    replay = {"ratio": 0.5, "datasets": [{"path": "a.jsonl", "transforms": [{"kind": "jsonl_to_chat"}]}]}
    prints = {loaded(tmp_path, seed=seed, replay=replay).fingerprint for seed in (3, 3, 4)}
    assert len(prints) == 2
    assert loaded(tmp_path, seed=3).fingerprint == loaded(tmp_path, seed=4).fingerprint


def test_a_bad_row_isnt_said_to_stand_where_another_one_does(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"nothing": 1}\n', encoding="utf-8")
    with pytest.raises(DataError) as caught:
        loaded(tmp_path, replay={"ratio": 1.0, "datasets": [{"path": "bad.jsonl"}]})
    assert "b.jsonl:" not in str(caught.value)
