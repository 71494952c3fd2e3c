import errno
import os
import subprocess
import sys

import pytest

from evsys.errors import DataError, StoreError
from evsys.types import ChatMessagesRow, Message
from evsys_record.files import temporary_name
from evsys_record.hashing import file_digest
from evsys_runtime.data.cache import DatasetCache
from evsys_runtime.data.ingredients import differences, nearest

ROWS = [{"a": 1, "text": "é\u2028"}, {"a": 2}]


@pytest.fixture
def cache(tmp_path):
    return DatasetCache(tmp_path / "cache")


def listing(cache):
    return sorted(path.name for path in cache.directory.iterdir())


def test_what_was_put_comes_back_by_name_and_by_id(cache):
    entry = cache.put("faq", ROWS, {"source": "store"})
    assert cache.get("faq") == cache.get(entry.id) == entry
    assert list(entry.rows()) == ROWS
    assert (entry.row_count, entry.lineage) == (2, {"source": "store"})
    assert entry.content_hash == file_digest(entry.path)
    assert entry.id.startswith("faq-")


def test_the_same_rows_are_stored_once(cache):
    first = cache.put("faq", ROWS)
    before = entry_times(first)
    assert cache.put("faq", iter(ROWS)) == first
    assert entry_times(first) == before
    assert listing(cache) == [first.id, "names.jsonl"]


def entry_times(entry):
    return [path.stat().st_mtime_ns for path in sorted(entry.directory.iterdir())]


def test_a_name_means_its_newest_rows_and_an_id_never_changes(cache):
    old = cache.put("faq", ROWS)
    new = cache.put("faq", [*ROWS, {"a": 3}])
    assert cache.get("faq") == new
    assert cache.get(old.id) == old
    cache.put("faq", ROWS)
    assert cache.get("faq") == old


def test_an_id_that_a_store_gave_refuses_other_bytes(cache):
    entry = cache.put("faq", ROWS, id="ds_01HX")
    assert entry.id == "ds_01HX"
    assert cache.put("faq", ROWS, id="ds_01HX") == entry
    with pytest.raises(StoreError, match=r"ds_01HX already names other rows.*never changes its bytes"):
        cache.put("faq", [{"a": 9}], id="ds_01HX")
    assert list(cache.get("ds_01HX").rows()) == ROWS
    assert listing(cache) == ["ds_01HX", "names.jsonl"]


@pytest.mark.parametrize("bad", ["../x", "a/b", "", ".hidden", "a b"])
def test_an_id_that_is_no_file_name_is_refused(cache, bad):
    with pytest.raises(StoreError, match="can't be an id"):
        cache.put("faq", ROWS, id=bad)


def test_what_is_not_there_is_none(cache):
    assert cache.get("faq") is None
    assert cache.get("../../etc/passwd") is None
    assert list(cache.entries()) == []
    assert cache.names() == {}


def test_changed_rows_are_found(cache):
    entry = cache.put("faq", ROWS)
    entry.path.chmod(0o644)
    content = entry.path.read_bytes()
    entry.path.write_bytes(content.replace(b"1", b"7"))
    with pytest.raises(
        StoreError, match=f"cache entry {entry.id} is corrupt: .*remove .* and pull the data again"
    ):
        cache.get("faq")
    assert cache.get("faq", verify=False) == entry
    entry.path.write_bytes(content + b"{}\n")
    with pytest.raises(StoreError, match="is corrupt"):
        cache.get(entry.id)
    entry.path.unlink()
    with pytest.raises(StoreError, match="is missing"):
        cache.get("faq")


def test_a_manifest_that_lacks_a_field_is_corrupt(cache):
    entry = cache.put("faq", ROWS)
    (entry.directory / "manifest.json").write_text('{"format": 1, "complete": true}', encoding="utf-8")
    with pytest.raises(StoreError, match="its manifest lacks 'id'"):
        cache.get("faq")


def test_the_rows_are_protected_from_a_slip(cache):
    entry = cache.put("faq", ROWS)
    assert entry.path.stat().st_mode & 0o222 == 0


def test_a_producer_that_fails_leaves_nothing(cache):
    def rows():
        yield {"a": 1}
        raise RuntimeError("the store went away")

    with pytest.raises(RuntimeError, match="went away"):
        cache.put("faq", rows())
    assert listing(cache) == []


def test_a_full_disk_leaves_nothing(cache, monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="No space left"):
        cache.put("faq", ROWS)
    assert listing(cache) == []


def test_half_written_and_incomplete_entries_are_never_listed(cache):
    entry = cache.put("faq", ROWS)
    half = temporary_name(cache.directory / "entry")
    half.mkdir()
    (half / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    (cache.directory / "other").mkdir()
    (cache.directory / "other" / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    (cache.directory / "third").mkdir()
    (cache.directory / "third" / "manifest.json").write_text(
        '{"format": 1, "complete": false}', encoding="utf-8"
    )
    assert list(cache.entries()) == [entry]
    assert cache.get("other") is None
    with pytest.raises(StoreError, match="other is incomplete"):
        cache.put("faq", ROWS, id="other")


def test_what_a_killed_process_left_goes_after_a_day(cache):
    cache.put("faq", ROWS)
    half = temporary_name(cache.directory / "entry")
    half.mkdir()
    cache.put("faq", [{"a": 3}])
    assert half.exists()
    os.utime(half, (0, 0))
    cache.put("faq", [{"a": 4}])
    assert not half.exists()


def test_typed_rows_are_stored_with_all_their_fields(cache):
    row = ChatMessagesRow(messages=(Message(role="user", content="hi"),), row_id="r1")
    (stored,) = cache.store([row]).rows()
    assert stored["row_id"] == "r1"
    assert stored["messages"][0]["content"] == "hi"


def test_a_row_that_is_no_mapping_is_refused_by_its_number(cache):
    with pytest.raises(DataError, match="row 2 is a list, expected a mapping"):
        cache.put("faq", [{"a": 1}, [1]])
    assert listing(cache) == []


def test_numbers_that_are_not_finite_become_null(cache):
    assert list(cache.store([{"a": float("nan")}]).rows()) == [{"a": None}]


def test_many_rows_stream_through_a_small_buffer(cache, monkeypatch):
    sizes, real = [], os.write

    def write(descriptor, data):
        sizes.append(len(data))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    entry = cache.store({"n": n, "text": "x" * 1000} for n in range(5000))
    assert entry.row_count == 5000
    assert max(sizes) < 2_000_000
    assert entry.content_hash == file_digest(entry.path)


def test_processes_that_put_at_once_agree(tmp_path):
    script = (
        "import sys; from pathlib import Path; from evsys_runtime.data.cache import DatasetCache\n"
        "cache = DatasetCache(Path(sys.argv[1]))\n"
        "same = cache.put('same', [{'n': n} for n in range(200)])\n"
        "own = cache.put('own-' + sys.argv[2], [{'p': sys.argv[2]}])\n"
        "print(same.id)\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), str(n)], stdout=subprocess.PIPE, text=True
        )
        for n in range(4)
    ]
    outputs = {child.communicate(timeout=60)[0] for child in children}
    assert [child.returncode for child in children] == [0] * 4
    assert len(outputs) == 1
    cache = DatasetCache(tmp_path)
    assert set(cache.names()) == {"same", "own-0", "own-1", "own-2", "own-3"}
    assert len(list(cache.entries())) == 5


INGREDIENTS = {"source": "sha256:a", "model": {"tokenizer": "x", "template": "t"}, "transforms": ["filter"]}


def test_an_entry_is_found_by_what_it_was_made_from(cache):
    entry = cache.store(ROWS, ingredients=INGREDIENTS)
    assert cache.find(dict(reversed(INGREDIENTS.items()))) == entry
    assert cache.find({**INGREDIENTS, "transforms": ["filter", "map"]}) is None


def test_a_miss_names_the_ingredient_that_differs(cache):
    cache.store(ROWS, ingredients={**INGREDIENTS, "source": "sha256:b", "seed": 1})
    entry = cache.store([{"a": 1}], ingredients=INGREDIENTS)
    wanted = {**INGREDIENTS, "model": {"tokenizer": "y", "template": "t"}}
    found, reasons = nearest(wanted, cache.entries())
    assert found == entry
    assert [str(reason) for reason in reasons] == ['model.tokenizer: "x" there, "y" wanted']


def test_differences_tell_missing_ingredients_and_types_apart():
    assert differences(INGREDIENTS, INGREDIENTS) == []
    texts = [str(reason) for reason in differences({"a": 1, "b": True}, {"b": 1, "c": None})]
    assert texts == ["a: nothing there, 1 wanted", "b: 1 there, true wanted"]
    assert nearest(INGREDIENTS, []) is None
