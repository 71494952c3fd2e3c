"""A `data` block to its dataset."""

import asyncio
import json
from collections import Counter
from types import SimpleNamespace

import attrs
import pytest

from evsys import Registry
from evsys.errors import ConfigError, DataError, PluginContractError, StoreError
from evsys_runtime.data.cache import DatasetCache
from evsys_runtime.data.load import load_dataset
from evsys_runtime.data.scope import current_scope

LINES = [
    {"prompt": f"q{n}", "completion": f"a{n}", "topic": "even" if n % 2 == 0 else "odd"} for n in range(6)
]


@attrs.frozen(kw_only=True)
class Data:
    """As much of a data block as the loader looks at."""

    source_kind: str | None = None
    path: str | None = None
    rows: tuple | None = None
    dataset_id: str | None = None
    dataset_name: str | None = None
    hf_dataset: str | None = None
    hf_split: str = "train"
    on_bad_row: str = "error"
    transforms: tuple = ()


class Only:
    streaming = True

    @attrs.frozen(kw_only=True)
    class Config:
        topic: str = "even"

    def __init__(self, **kw):
        self.topic = kw["topic"]

    def __call__(self, rows):
        self.dropped = Counter()
        for row in rows:
            if row.get("topic") == self.topic:
                yield row
            else:
                self.dropped[f"topic is not {self.topic}"] += 1


def spoil(rows):
    for row in rows:
        row["extra"]["touched"] = True
        yield row


class FakeHub:
    """Stands for the `hf` store; remembers what it was asked."""

    asked = None

    @attrs.frozen(kw_only=True)
    class Config:
        split: str = "train"

    def __init__(self, **kw):
        self.split = kw["split"]

    async def pull(self, ref):
        type(self).asked = (ref, self.split, current_scope().project_root)
        return LINES


@pytest.fixture
def registry():
    found = Registry(entry_points=())
    found.register("transform", "only", Only)
    found.register("transform", "spoil", spoil)
    found.register("transform", "last_first", lambda rows: reversed(list(rows)))
    found.register("data_store", "hf", FakeHub)
    return found


@pytest.fixture
def load(registry, tmp_path):
    def run(config, **options):
        options = {"shape": "chat", "project_root": tmp_path, "registry": registry} | options
        return load_dataset(config, **options)

    return run


@pytest.fixture
def file(tmp_path):
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    return path


def spec(kind, **params):
    return SimpleNamespace(kind=kind, params=params)


def test_a_file_is_found_from_the_project_root_whatever_the_working_directory(
    load, file, tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    data = load(Data(path="data/train.jsonl"))
    assert [row.messages[0].content for row in data] == [f"q{n}" for n in range(6)]
    assert data.lineage == ({"source": "file", "path": "data/train.jsonl"},)
    assert data.warnings == ()
    assert data.dropped == {}


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("t.json", json.dumps(LINES), None),
        ("t.csv", "prompt,completion,topic\n" + "".join(f"q{n},a{n},even\n" for n in range(6)), None),
        ("t.data", "\n".join(map(json.dumps, LINES)), "jsonl"),
        ("t.txt", "prompt,completion,topic\n" + "".join(f"q{n},a{n},even\n" for n in range(6)), "csv"),
    ],
)
def test_the_format_comes_from_the_suffix_or_is_named(load, tmp_path, name, content, kind):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert len(load(Data(path=name, source_kind=kind))) == 6


def test_dropped_rows_are_told_by_where_they_were_dropped(load, tmp_path):
    lines = [json.dumps(LINES[0]), "[]", json.dumps(LINES[1]), json.dumps({"topic": "even", "text": "x"})]
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    data = load(Data(path="t.jsonl", on_bad_row="skip", transforms=(spec("only"),)))
    assert len(data) == 1
    assert data.dropped == {
        "reading: not an object": 1,
        "only: topic is not even": 1,
        "chat: neither `messages` nor `prompt` with `completion` nor `chosen` with `rejected`": 1,
    }


def test_untyped_rows_are_named_by_their_line_while_transforms_keep_the_order(load, tmp_path):
    lines = [json.dumps(LINES[1]), "", json.dumps(LINES[0]), json.dumps({"topic": "even"})]
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=r"row 1 \(t\.jsonl:4\): neither"):
        load(Data(path="t.jsonl", transforms=(spec("only"),)))


def test_no_row_left_is_an_error_that_names_the_transform(load, file):
    with pytest.raises(
        DataError, match=r"transform 'only' let none of 6 rows through \(topic is not neither: 6\)"
    ):
        load(Data(path="data/train.jsonl", transforms=(spec("only", topic="neither"),)))


def test_problems_of_a_transforms_params_have_their_place_in_the_file(load, file):
    with pytest.raises(
        ConfigError, match=r"\$\.run\.data\.transforms\[1\]\.params\.topik.*did you mean 'topic'"
    ):
        load(Data(path="data/train.jsonl", transforms=(spec("only"), spec("only", topik="x"))))


def test_given_rows_stay_as_they_were_whatever_a_transform_does(load):
    rows = tuple({**line, "extra": {}} for line in LINES)
    data = load(Data(rows=rows, transforms=(spec("spoil"),)))
    assert data[0].metadata["extra"] == {"touched": True}
    assert all(row["extra"] == {} for row in rows)
    with pytest.raises(PluginContractError, match="'spoil' changed row 0"):
        load(Data(rows=rows, transforms=(spec("spoil"),)), check_mutation=True)


def test_a_mapping_will_do_as_a_block(load):
    data = load({"source_kind": "in_memory", "rows": LINES, "transforms": [{"kind": "only"}]})
    assert len(data) == 3
    assert data.lineage[0] == {"source": "in_memory", "rows": 6}
    assert data.lineage[1]["kind"] == "only"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Data(), r"\$\.run\.data: no rows; give one of `path`"),
        (Data(source_kind="jsonl"), "`source_kind: jsonl` needs `path`"),
        (Data(source_kind="in_memory", rows=()), "`source_kind: in_memory` needs `rows`"),
        (Data(source_kind="hf_dataset"), "`source_kind: hf_dataset` needs `hf_dataset`"),
        (
            Data(source_kind="parquet", path="x"),
            r"\$\.run\.data\.source_kind: no source kind 'parquet'; known are csv",
        ),
    ],
)
def test_a_block_without_a_source_says_what_is_missing(load, config, message):
    with pytest.raises(ConfigError, match=message):
        load(config)


def test_given_rows_must_be_mappings(load):
    with pytest.raises(DataError, match="row 1 of `rows` is not a mapping"):
        load(Data(rows=(LINES[0], "x")))


def test_a_hub_dataset_comes_through_the_hf_store(load, tmp_path):
    data = load(Data(hf_dataset="someone/questions", hf_split="train[:6]"))
    assert len(data) == 6
    assert FakeHub.asked == ("someone/questions", "train[:6]", tmp_path)
    assert data.lineage[0] == {"source": "hf_dataset", "dataset": "someone/questions", "split": "train[:6]"}


def test_loading_works_where_an_event_loop_runs(load):
    async def main():
        return load(Data(hf_dataset="someone/questions"))

    assert len(asyncio.run(main())) == 6


# --- datasets by id or name -------------------------------------------------------------------------------------


def unreachable(_ref):
    raise StoreError("store.example.com does not answer")


def test_an_id_wins_over_a_path_and_may_be_pulled_in_three_ways(load, file, tmp_path):
    stored = tmp_path / "rows.jsonl"
    stored.write_text(json.dumps(LINES[0]), encoding="utf-8")

    async def later(ref):
        return [LINES[0]]

    cached = DatasetCache(tmp_path / "cache").put("d", [LINES[0]], {"source": "project"})
    for pull in (lambda ref: stored, lambda ref: cached, lambda ref: [LINES[0]], later):
        data = load(Data(dataset_id="d1", path="data/train.jsonl"), pull=pull)
        assert len(data) == 1
        assert data.lineage[0]["ref"] == "d1"
        assert data.warnings == ()
    assert (
        load(Data(dataset_name="d"), pull=lambda ref: cached).lineage[0]["content_hash"]
        == cached.content_hash
    )


def test_a_path_is_the_fallback_for_a_store_that_cannot_be_reached_and_a_warning_says_so(load, file):
    for pull in (unreachable, None):
        data = load(Data(dataset_id="d1", path="data/train.jsonl"), pull=pull)
        assert len(data) == 6
        assert "dataset 'd1' could not be pulled" in data.warnings[0]
        assert "read from data/train.jsonl instead" in data.warnings[0]
        assert data.lineage[0]["instead_of"] == "d1"


def test_without_a_fallback_the_stores_error_is_told(load):
    with pytest.raises(StoreError, match="does not answer"):
        load(Data(dataset_id="d1"), pull=unreachable)
    with pytest.raises(StoreError, match="no data store is set up"):
        load(Data(dataset_id="d1"))


def test_a_dataset_that_the_store_does_not_have_is_no_reason_for_the_fallback(load, file):
    def unknown(_ref):
        raise StoreError("no dataset 'd1'", reachable=True)

    with pytest.raises(StoreError, match="no dataset 'd1'"):
        load(Data(dataset_id="d1", path="data/train.jsonl"), pull=unknown)


def test_a_failing_store_is_attributed(load):
    def broken(_ref):
        raise KeyError("x")

    with pytest.raises(StoreError, match="store 'data_store' failed: KeyError"):
        load(Data(dataset_id="d1"), pull=broken)


# --- the rest ---------------------------------------------------------------------------------------------------


def test_a_limit_reads_no_further(load, tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join([*map(json.dumps, LINES), "broken"]), encoding="utf-8")
    assert len(load(Data(path="t.jsonl"), limit=2)) == 2
    assert len(load(Data(path="t.jsonl", transforms=(spec("only"),)), limit=2)) == 2


def test_a_limit_says_how_many_rows_it_left_unread(load, file):
    everything = load(Data(path="data/train.jsonl"), limit=10)
    assert (len(everything), everything.not_read, load(Data(path="data/train.jsonl")).not_read) == (6, 0, 0)
    assert load(Data(path="data/train.jsonl"), limit=5).not_read is None
    assert load(Data(path="data/train.jsonl"), limit=6).not_read == 0
    sorted_rows = load(Data(path="data/train.jsonl", transforms=(spec("only"), spec("last_first"))), limit=1)
    assert (len(sorted_rows), sorted_rows.not_read) == (1, 2)
    assert sorted_rows.dropped == {"only: topic is not even": 3}


def test_the_same_block_gives_the_same_fingerprint_and_other_rows_another(load, file):
    first = load(Data(path="data/train.jsonl")).fingerprint
    assert load(Data(path="data/train.jsonl")).fingerprint == first
    assert load(Data(rows=tuple(LINES))).fingerprint == first
    assert load(Data(path="data/train.jsonl", transforms=(spec("only"),))).fingerprint != first


def test_fewer_rows_than_any_are_an_error(load):
    with pytest.raises(DataError, match="holds no rows"):
        load(Data(dataset_id="d1"), pull=lambda ref: [])


def test_empty_answers_are_warned_of(load):
    rows = [{"prompt": "a", "completion": text} for text in ("", " \n", "b", "c")]
    data = load({"rows": rows})
    assert len(data) == 4
    [warning] = data.warnings
    assert "2 of 4 rows end with an empty answer, which teaches the model to say nothing" in warning
    data.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"reasoning": "b", "content": ""},
        {"content": "", "tool_calls": [{"name": "find", "arguments": {}}]},
        {"content": "", "weight": 0},
    ],
    ids=["thoughts", "tool call", "not trained"],
)
def test_an_answer_without_text_may_be_meant(load, answer):
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", **answer}]
    data = load({"rows": [{"messages": messages}]})
    assert data.warnings == ()
    data.close()


def tool_row(arguments, properties):
    call = {"name": "find", "arguments": arguments}
    tool = {
        "type": "function",
        "function": {"name": "find", "parameters": {"type": "object", "properties": properties}},
    }
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]
    return {"messages": said, "tools": [tool]}


def test_null_as_an_argument_or_parameter_of_a_tool_is_warned_of(load):
    number = {"type": "integer"}
    rows = [
        tool_row({"city": "Rome", "zip": None}, {"zip": number}),
        tool_row({"zip": 3}, {"city": None, "zip": number}),
        tool_row({"zip": 3}, {"zip": {**number, "default": None}}),
    ]
    data = load({"rows": rows})
    [warning] = data.warnings
    assert "2 of 3 rows give null for an argument or parameter of a tool" in warning
    data.close()


@pytest.mark.parametrize("shape", ["chat", "prompt", "task"])
def test_a_column_that_is_null_is_named_as_that(load, shape):
    rows = [{"messages": None, "prompt": None, "task_id": None}]
    column = {"chat": "messages", "prompt": "prompt", "task": "task_id"}[shape]
    with pytest.raises(DataError, match=f"row 0: `{column}` is null"):
        load({"rows": rows}, shape=shape)


def test_a_problem_with_rows_of_a_store_names_the_folder_to_remove(load, tmp_path):
    entry = DatasetCache(tmp_path / "cache").put("d", [{"error": "busy"}], {"source": "store", "ref": "d"})
    with pytest.raises(DataError, match=f"are kept in {entry.directory}; remove it to pull them again"):
        load(Data(dataset_id="d"), pull=lambda ref: entry)
