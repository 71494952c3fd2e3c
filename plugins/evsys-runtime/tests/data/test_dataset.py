"""Datasets: typed rows by number, in memory or in a file, with a fingerprint of what they say."""

import gc
import hashlib
import threading
import tracemalloc
from array import array

import pytest

from evsys.errors import DataError, StoreError
from evsys_record.files import SPOOLED
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.data.spool import LineStore

ROWS = [{"prompt": f"What is {n}?", "completion": f"{n}é\u2028", "n": n} for n in range(50)]


def dataset(tmp_path, *, limit=2**20, rows=ROWS):
    return MaterializedDataset.from_rows(rows, "chat", spool_dir=tmp_path / "spool", memory_limit=limit)


@pytest.mark.parametrize("limit", [2**20, 500])
def test_rows_are_typed_by_number_wherever_they_lie(tmp_path, limit):
    data = dataset(tmp_path, limit=limit)
    assert data.in_memory == (limit > 500)
    assert len(data) == 50
    assert data[7].messages[1].content == "7é\u2028"
    assert data[7].metadata == {"n": 7}
    assert [row.row_id for row in data] == [str(n) for n in range(50)]
    assert data[-1] == data[49]
    assert list(data) == [data[n] for n in range(50)]
    assert list(data.rows()) == ROWS
    with pytest.raises(IndexError, match="row 50 of 50"):
        data[50]
    data.close()


def test_the_fingerprint_is_the_hash_of_the_saved_file_and_the_same_in_memory(tmp_path):
    small, big = dataset(tmp_path), dataset(tmp_path, limit=100)
    other = dataset(tmp_path, rows=ROWS[::-1])
    assert small.fingerprint == big.fingerprint != other.fingerprint
    for name, data in (("a", small), ("b", big)):
        data.save(tmp_path / "saved" / name)
        content = (tmp_path / "saved" / name).read_bytes()
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == data.fingerprint
        assert b"".join(data.lines()) == content
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["a", "b"]


def test_saving_replaces_the_file_and_survives_the_dataset(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("old", encoding="utf-8")
    data = dataset(tmp_path, limit=100)
    data.save(path)
    del data
    gc.collect()
    assert path.read_bytes().count(b"\n") == 50


def test_saving_where_links_fail_copies(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    monkeypatch.setattr("evsys_runtime.data.dataset.os.link", refuse)
    data = dataset(tmp_path, limit=100)
    data.save(tmp_path / "rows.jsonl")
    assert (tmp_path / "rows.jsonl").read_bytes() == b"".join(data.lines())


def test_saving_to_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(StoreError, match="can't write rows to"):
        dataset(tmp_path).save(tmp_path / "file" / "rows.jsonl")


def test_the_spooled_file_goes_with_the_dataset(tmp_path):
    data = dataset(tmp_path, limit=100)
    assert len(list((tmp_path / "spool").glob(SPOOLED))) == 1
    del data
    gc.collect()
    assert list((tmp_path / "spool").iterdir()) == []


def test_nothing_is_left_behind_when_reading_fails(tmp_path):
    rows = [*ROWS, {"text": "no messages"}]
    with pytest.raises(DataError, match="row 50: neither"):
        dataset(tmp_path, limit=100, rows=rows)
    assert list((tmp_path / "spool").iterdir()) == []


def test_small_datasets_write_no_file(tmp_path):
    dataset(tmp_path)
    assert not (tmp_path / "spool").exists()


def test_values_that_json_cannot_hold_are_refused_with_row_and_column(tmp_path):
    rows = [*ROWS[:2], {**ROWS[2], "when": object()}]
    with pytest.raises(DataError, match="row 2: column 'when' holds"):
        dataset(tmp_path, rows=rows)
    with pytest.raises(DataError, match=r"^rows\.jsonl:7: row 2: column 'when' holds"):
        MaterializedDataset.from_rows(rows, "chat", place=lambda: "rows.jsonl:7")


def test_skipped_rows_leave_no_gap(tmp_path):
    rows = [ROWS[0], {"text": "x"}, ROWS[1]]
    data = MaterializedDataset.from_rows(rows, "chat", on_bad_row="skip")
    assert [row.metadata["n"] for row in data] == [0, 1]
    assert [row.row_id for row in data] == ["0", "1"]


def test_threads_read_side_by_side(tmp_path):
    data = dataset(tmp_path, limit=100)
    wrong = []

    def read(first):
        for n in range(200):
            index = (first + 7 * n) % 50
            if data[index].metadata["n"] != index:
                wrong.append(index)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_memory_holds_an_index_and_not_the_rows(tmp_path):
    def rows():
        for n in range(6000):
            yield {"prompt": "x" * 800, "completion": str(n)}

    tracemalloc.start()
    try:
        data = MaterializedDataset.from_rows(rows(), "chat", spool_dir=tmp_path, memory_limit=2**18)
        assert sum(1 for _ in data) == 6000
        assert tracemalloc.get_traced_memory()[1] < 2 * 2**20
    finally:
        tracemalloc.stop()
    data.close()


# --- lines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [10**6, 0])
def test_lines_come_in_any_order(tmp_path, limit):
    store = LineStore(tmp_path, memory_limit=limit)
    for n in range(9):
        store.append(b"%d\n" % n)
    store.seal()
    assert list(store) == [b"%d\n" % n for n in range(9)]
    assert list(store.in_order(array("Q", [8, 0, 3]))) == [b"8\n", b"0\n", b"3\n"]
    store.close()


def test_a_full_disk_is_told_with_the_file(tmp_path):
    class Full:
        def write(self, _line):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    store = LineStore(tmp_path, memory_limit=0)
    store.append(b"a\n")
    store._writer.close()
    store._writer = Full()
    with pytest.raises(
        StoreError, match=r"can't write rows to .*rows-.*: No space left on device; free space"
    ):
        store.append(b"b\n")
    store.close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(StoreError, match="can't make a file for rows in"):
        LineStore(tmp_path / "file", memory_limit=0).append(b"a\n")
