import errno
import json
import os
import stat
from pathlib import Path

import attrs
import pytest

from evsys.errors import StoreError
from evsys_record import files
from evsys_record.encoding import encode_pretty, encode_record, now
from evsys_record.files import read_json, sweep, write_atomic, write_json
from evsys_record.hashing import file_digest
from evsys_record.jsonl import append_record, read_jsonl
from evsys_record.tail import Tail


def full_disk(monkeypatch, after: int = 0):
    """After so many writes, `os.write` says that no space is left."""
    real, calls = os.write, []

    def write(descriptor, data):
        calls.append(data)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    write_atomic(path, "новое ☃")
    assert path.read_bytes() == "новое ☃".encode()
    assert names(tmp_path) == {"a.txt"}


def test_the_bytes_reach_the_disk_before_the_name_and_then_the_folder_does(tmp_path, monkeypatch):
    order, replace = [], Path.replace
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: order.append("folder" if is_folder(descriptor) else "file")
    )
    monkeypatch.setattr(Path, "replace", lambda self, target: order.append("name") or replace(self, target))
    write_atomic(tmp_path / "a", "x")
    assert order == ["file", "name", "folder"]


def is_folder(descriptor):
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    write_json(path, {"a": 1})
    full_disk(monkeypatch)
    with pytest.raises(
        StoreError, match=r"can't write .*run\.json: No space left.*free some space"
    ) as caught:
        write_json(path, {"a": 2})
    assert caught.value.facts["number"] == errno.ENOSPC
    assert read_json(path)["a"] == 1
    assert names(tmp_path) == {"run.json"}


def test_a_failing_replace_leaves_no_temporary_file(tmp_path, monkeypatch):
    def refuse(self, target):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(StoreError, match="read-only; choose another output_dir"):
        write_atomic(tmp_path / "a", "x")
    assert names(tmp_path) == set()


def test_an_interrupted_write_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupt(descriptor, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "a", "x")
    assert names(tmp_path) == set()


def test_an_unwritable_directory_says_what_to_do(tmp_path, monkeypatch):
    def refuse(path, *arguments):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="Permission denied; make it writable, or choose another output_dir"):
        write_atomic(tmp_path / "a", "x")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_refused_for_real(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="choose another output_dir"):
            write_atomic(tmp_path / "a", "x")
    finally:
        tmp_path.chmod(0o700)


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path):
    (tmp_path / "runs").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="in the way"):
        write_atomic(tmp_path / "runs" / "a.json", "x")


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
    write_atomic(tmp_path / "a", "0123456789")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "0123456789"


def test_json_files_carry_their_format_first_and_sort_every_level(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"b": {"z": 1, "y": [2]}, "a": "é\u2028"})
    first = path.read_bytes()
    write_json(path, {"a": "é\u2028", "b": {"y": [2], "z": 1}})
    assert path.read_bytes() == first
    assert first.decode("utf-8").startswith('{\n  "format": 1,\n  "a": "é')
    assert read_json(path) == {"format": 1, "a": "é\u2028", "b": {"y": [2], "z": 1}}


def test_numbers_that_are_not_finite_become_null(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"loss": float("nan"), "best": [float("inf"), -float("inf"), 1.5]})
    text = path.read_text(encoding="utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read_json(path) == {"format": 1, "loss": None, "best": [None, None, 1.5]}


def test_every_field_of_an_attrs_class_is_written(tmp_path):
    @attrs.frozen
    class Result:
        status: str
        steps: int | None = None

    write_json(tmp_path / "a.json", Result("completed"))
    assert read_json(tmp_path / "a.json") == {"format": 1, "status": "completed", "steps": None}


def test_what_has_no_json_form_is_refused_with_the_file(tmp_path):
    for value in (object(), {("a", "b"): 1}, b"bytes"):
        with pytest.raises(StoreError, match=r"a\.json"):
            write_json(tmp_path / "a.json", {"value": value})
    loop: dict = {}
    loop["self"] = loop
    with pytest.raises(StoreError, match="Circular"):
        write_json(tmp_path / "a.json", loop)
    assert names(tmp_path) == set()


def test_large_files_are_compact():
    text = encode_pretty({"arms": ["x" * 100] * 20_000}, {"format": 1})
    assert text.count("\n") == 1
    assert json.loads(text)["format"] == 1


def test_a_lone_surrogate_survives(tmp_path):
    write_json(tmp_path / "a.json", {"text": "a\ud800b"})
    assert read_json(tmp_path / "a.json")["text"] == "a\ud800b"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "isn't JSON"),
        (b"\xff\xfe", "isn't JSON"),
        (b"[]", "expected a mapping"),
        (b'{"format": 2}', "format 2, this evsys reads 1; upgrade evsys"),
        (b"{}", "format None"),
    ],
)
def test_a_broken_json_file_is_named(tmp_path, content, message):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=message) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_a_missing_json_file_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"can't read .*a\.json: No such file"):
        read_json(tmp_path / "a.json")


def test_an_append_ends_a_line_that_was_left_open(tmp_path):
    path = tmp_path / "log" / "a.jsonl"
    append_record(path, {"a": 1})
    with path.open("ab") as stream:
        stream.write(b'{"a":2')
    append_record(path, {"a": 3})
    assert list(read_jsonl(path)) == [{"a": 1}, {"a": 3}]


def test_a_whole_line_without_its_end_is_kept_by_the_next_append(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}')
    append_record(path, {"a": 3})
    assert [record["a"] for record in read_jsonl(path)] == [1, 2, 3]


def test_a_torn_line_longer_than_a_block_is_found(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":"' + b"x" * 200_000)
    append_record(path, {"a": 3})
    assert [record["a"] for record in read_jsonl(path)] == [1, 3]


def test_appending_to_a_full_disk_is_told(tmp_path, monkeypatch):
    full_disk(monkeypatch)
    with pytest.raises(StoreError, match="can't append to"):
        append_record(tmp_path / "a.jsonl", {})


def test_sweep_removes_temporary_names_alone(tmp_path):
    left = files.temporary_name(tmp_path / "run.json")
    left.write_text("half", encoding="utf-8")
    folder = files.temporary_name(tmp_path / "100")
    (folder / "inner").mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("*", encoding="utf-8")
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    assert sweep(tmp_path, older_than=3600) == []
    assert sorted(sweep(tmp_path)) == sorted([left, folder])
    assert names(tmp_path) == {".gitignore", "run.json"}


def test_folders_that_can_not_be_synced_are_accepted(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", refuse)
    files.sync_directory(tmp_path)

    def broken(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        files.sync_directory(tmp_path)


def test_records_take_arrays_and_objects_and_describe_what_is_odd():
    numpy = pytest.importorskip("numpy")

    class Odd:
        def __repr__(self):
            return "<odd>"

    record = {
        "array": numpy.arange(3),
        "number": numpy.float32(0.5),
        "nan": numpy.float32("nan"),
        "path": Path("a/b"),
        "set": {2, 1},
        "range": range(2),
        "odd": Odd(),
    }
    assert json.loads(encode_record(record)) == {
        "array": [0, 1, 2],
        "number": 0.5,
        "nan": None,
        "path": str(Path("a/b")),
        "set": [1, 2],
        "range": [0, 1],
        "odd": "<odd>",
    }


def test_now_is_iso_8601_in_utc():
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(now())
    assert moment.tzinfo == UTC
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 5


@pytest.mark.parametrize("text", ["no file b\udcb2d.txt", "\ud83d", "\udfff\ud800 and words"])
def test_any_text_can_be_written(tmp_path, text):
    write_atomic(tmp_path / "conclusion.md", text)
    assert (tmp_path / "conclusion.md").read_bytes().decode("utf-8").isprintable()
    write_json(tmp_path / "a.json", {"text": text, text: 1})
    assert read_json(tmp_path / "a.json") == {"format": 1, "text": text, text: 1}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes in folders")
@pytest.mark.parametrize(
    "read",
    [read_json, lambda path: list(read_jsonl(path)), file_digest, lambda path: list(Tail(path).read())],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_in_a_record_is_refused_at_once(tmp_path, read, kind):
    path = tmp_path / "experiment.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(StoreError, match="it is not a regular file"):
        read(path)


@pytest.mark.parametrize(
    "read", [read_json, lambda path: list(read_jsonl(path)), lambda path: list(Tail(path).read())]
)
def test_json_without_end_of_its_nesting_is_refused(tmp_path, read):
    path = tmp_path / "conclusion.json"
    path.write_text('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}\n", encoding="utf-8")
    with pytest.raises(StoreError, match="isn't JSON"):
        read(path)
