"""Data stores: local files, rows in memory, Hugging Face datasets."""

import asyncio
import datetime as dt
import json

import pytest

from evsys import Registry
from evsys.errors import DataError, PluginLoadError, StoreError
from evsys_runtime.data.load import load_dataset
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_std.stores import HuggingFaceStore, InMemoryStore, LocalStore

ROWS = [{"question": "Kde je Žluť?", "answer": "a\u2028b"}, {"question": "q2", "answer": "a2"}]


def pull(store, ref):
    return list(asyncio.run(store.pull(ref)))


@pytest.fixture
def project(tmp_path):
    with use_scope(DataScope(project_root=tmp_path)):
        yield tmp_path


def write(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")


# --- local ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ref", ["sums/v1/train.jsonl", "sums/v1/train", "sums/v1"])
def test_a_reference_is_a_file_with_or_without_suffix_or_its_folder(project, ref):
    write(project / "data" / "sums" / "v1" / "train.jsonl")
    assert pull(LocalStore(), ref) == ROWS


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.json", json.dumps(ROWS)), ("a.csv", "question,answer\nKde je Žluť?,a\u2028b\nq2,a2\n")],
)
def test_json_and_csv_are_read_too(project, name, content):
    (project / "files").mkdir()
    (project / "files" / name).write_text(content, encoding="utf-8")
    assert pull(LocalStore(root="files"), "a") == ROWS


def test_rows_are_streamed(project):
    write(project / "data" / "a.jsonl")
    with (project / "data" / "a.jsonl").open("a", encoding="utf-8") as stream:
        stream.write("\nbroken")
    rows = iter(asyncio.run(LocalStore().pull("a")))
    assert next(rows) == ROWS[0]
    with pytest.raises(DataError, match=r"a\.jsonl:3: not valid JSON"):
        list(rows)


def test_a_reference_cannot_leave_the_folder(project):
    write(project / "secret.jsonl")
    (project / "data").mkdir()
    for ref in ("../secret.jsonl", str(project / "secret.jsonl")):
        with pytest.raises(StoreError, match="leaves the folder"):
            pull(LocalStore(), ref)


def test_an_unknown_reference_names_what_is_there(project):
    write(project / "data" / "sums" / "train.jsonl")
    with pytest.raises(StoreError, match=r"no dataset 'sum' in .*data; it has sums/train\.jsonl") as caught:
        pull(LocalStore(), "sum")
    assert caught.value.facts["reachable"] is True
    with pytest.raises(StoreError, match="the folder does not exist") as caught:
        pull(LocalStore(root="nowhere"), "sum")
    assert caught.value.facts["reachable"] is False


# --- in memory --------------------------------------------------------------------------------------------------


def test_rows_in_memory_are_copied_for_each_who_pulls():
    store = Registry().build("data_store", "in_memory", {"datasets": {"sums": [{"a": {"b": 1}}]}})
    pull(store, "sums")[0]["a"]["b"] = 2
    assert pull(store, "sums") == [{"a": {"b": 1}}]
    with pytest.raises(StoreError, match="no dataset 'sum' in memory; known are sums"):
        pull(store, "sum")
    assert pull(InMemoryStore(datasets={"none": []}), "none") == []


# --- hugging face -----------------------------------------------------------------------------------------------


@pytest.fixture
def datasets(monkeypatch, tmp_path):
    found = pytest.importorskip("datasets", reason="the extra evsys-sdk[hf] is not installed")
    found.disable_progress_bars()
    monkeypatch.setattr(found.config, "HF_HUB_OFFLINE", True)
    return found


def hub(**params):
    return HuggingFaceStore(cache_dir="cache", **params)


def test_a_folder_of_data_files_is_a_dataset_with_splits(project, datasets):
    write(project / "folder" / "train.jsonl")
    write(project / "folder" / "test.jsonl", ROWS[:1])
    assert pull(hub(), "folder") == ROWS
    assert pull(hub(split="test"), "folder") == ROWS[:1]
    assert pull(hub(split="train[1:]"), "folder") == ROWS[1:]
    with pytest.raises(StoreError, match="dataset 'folder' can't be loaded: ValueError: Unknown split"):
        pull(hub(split="validation"), "folder")


def test_a_dataset_saved_to_disk_is_read(project, datasets):
    saved = datasets.Dataset.from_list(
        [{"when": dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC), "tags": ["a"], "none": None}]
    )
    saved.save_to_disk(str(project / "saved"))
    datasets.DatasetDict({"train": saved, "test": saved}).save_to_disk(str(project / "splits"))
    expected = [{"when": "2024-05-01T12:00:00+00:00", "tags": ["a"], "none": None}]
    assert pull(hub(), "saved") == expected
    assert pull(hub(split="test"), "splits") == expected
    with pytest.raises(StoreError, match="no split 'val'; it has train, test"):
        pull(hub(split="val"), "splits")


def test_keys_that_a_row_never_had_are_not_read_as_null(project, datasets):
    calls = [{"name": "find", "arguments": {"city": "Rome"}}, {"name": "find", "arguments": {"zip": 3}}]
    datasets.Dataset.from_list([{"call": call, "note": None} for call in calls]).save_to_disk(
        str(project / "saved")
    )
    datasets.Dataset.from_list([{"calls": calls}]).to_parquet(str(project / "folder" / "train.parquet"))
    assert pull(hub(), "saved") == [{"call": call, "note": None} for call in calls]
    assert pull(hub(), "folder") == [{"calls": calls}]


def test_null_in_a_column_of_json_is_null(project, datasets):
    features = datasets.Features({"json": datasets.Json()})
    rows = [{"json": {"a": None}}, {"json": {"b": [None]}}]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(str(project / "saved"))
    assert pull(hub(), "saved") == rows


def test_a_run_reads_a_local_hub_folder_from_its_project(project, datasets):
    write(project / "folder" / "train.jsonl")
    config = {"hf_dataset": "folder", "hf_split": "train", "transforms": [{"kind": "jsonl_to_chat"}]}
    data = load_dataset(config, shape="chat", project_root=project, registry=Registry())
    assert [row.messages[0].content for row in data] == [row["question"] for row in ROWS]


def test_a_hub_that_cannot_be_reached_is_told_apart_from_a_dataset_that_is_not_there(
    project, datasets, monkeypatch
):
    def lost(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", lost)
    with pytest.raises(
        StoreError, match="dataset 'a/b' can't be reached: ConnectionError: no route"
    ) as caught:
        pull(hub(), "a/b")
    assert caught.value.facts["reachable"] is False


def test_without_the_package_the_install_line_is_told(monkeypatch):
    monkeypatch.setattr("evsys_std.stores.find_spec", lambda _name: None)
    with pytest.raises(PluginLoadError, match=r"needs the package `datasets`; pip install 'evsys-sdk\[hf\]'"):
        Registry().build("data_store", "hf", {})
