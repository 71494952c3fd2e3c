import errno
import json
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.errors import StoreError
from evsys_record.jsonl import JsonlWriter, append_record, read_jsonl

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r\n\t\x00\x18"

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text(SEPARATORS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
records = st.lists(st.dictionaries(st.text() | st.text(SEPARATORS), values, max_size=4), max_size=6)


@given(records)
@settings(max_examples=80, deadline=None)
def test_any_records_come_back_one_a_line(tmp_path_factory, given_records):
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    with JsonlWriter(path) as writer:
        for record in given_records:
            writer.write(record)
    assert list(read_jsonl(path, missing_ok=True)) == given_records
    lines = path.read_bytes().count(b"\n") if path.exists() else 0
    assert lines == len(given_records)


@given(records.filter(bool), st.data())
@settings(max_examples=80, deadline=None)
def test_a_file_cut_anywhere_loses_only_what_was_cut(tmp_path_factory, given_records, data):
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    with JsonlWriter(path) as writer:
        for record in given_records:
            writer.write(record)
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    found = list(read_jsonl(path))
    assert found[:whole] == given_records[:whole]
    assert found == given_records[: len(found)]
    assert len(found) <= whole + 1
    append_record(path, {"after": True})
    assert list(read_jsonl(path)) == [*found, {"after": True}]


def test_other_line_separators_stay_inside_a_line(tmp_path):
    path = tmp_path / "a.jsonl"
    append_record(path, {"text": "a\u2028b\u2029c\x85d"})
    assert path.read_bytes().count(b"\n") == 1
    assert "\u2028" in path.read_text(encoding="utf-8")
    assert list(read_jsonl(path)) == [{"text": "a\u2028b\u2029c\x85d"}]


def test_the_default_encoding_of_the_system_does_not_matter(tmp_path):
    path = tmp_path / "a.jsonl"
    script = (
        "from pathlib import Path; from evsys_record.jsonl import *;"
        f"p = Path({str(path)!r}); append_record(p, {{'text': chr(0x1F600)}});"
        "assert next(read_jsonl(p))['text'] == chr(0x1F600)"
    )
    environment = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    assert json.loads(path.read_text(encoding="utf-8"))["text"] == "😀"


def test_blank_lines_a_mark_at_the_start_and_carriage_returns_are_read_over(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a":1}\r\n\r\n   \n{"a":2}\r\n')
    assert list(read_jsonl(path)) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("bad", [b'{"a":', b"[]", b"3", b'{"a":1}{"a":2}', b"\xff"])
def test_a_malformed_line_in_the_middle_is_an_error_with_its_physical_line(tmp_path, bad):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n\n\n' + bad + b'\n{"a":2}\n')
    with pytest.raises(StoreError) as caught:
        list(read_jsonl(path))
    assert f"{path}:4:" in str(caught.value)


def test_a_missing_file_is_an_error_unless_allowed(tmp_path):
    assert list(read_jsonl(tmp_path / "none.jsonl", missing_ok=True)) == []
    with pytest.raises(StoreError, match="can't read"):
        list(read_jsonl(tmp_path / "none.jsonl"))


def test_reading_streams(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\nnot json\n')
    assert next(read_jsonl(path)) == {"a": 1}


def test_a_record_is_one_write(tmp_path, monkeypatch):
    sizes, real = [], os.write
    monkeypatch.setattr(
        os, "write", lambda descriptor, data: sizes.append(len(data)) or real(descriptor, data)
    )
    with JsonlWriter(tmp_path / "a.jsonl") as writer:
        writer.write({"text": "x" * 100_000})
        writer.write({"a": 1})
    assert len(sizes) == 2


def test_a_record_is_readable_as_soon_as_write_returns(tmp_path):
    writer = JsonlWriter(tmp_path / "a.jsonl")
    for number in range(3):
        writer.write({"n": number})
        assert [record["n"] for record in read_jsonl(writer.path)] == list(range(number + 1))
    writer.close()


def test_a_disk_that_fills_inside_a_line_leaves_no_half_line(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    writer = JsonlWriter(path)
    writer.write({"n": 1})
    real, calls = os.write, []

    def fills(descriptor, data):
        calls.append(data)
        if len(calls) % 3 == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, bytes(data)[:5])

    monkeypatch.setattr(os, "write", fills)
    with pytest.raises(StoreError, match=r"can't append to .*a\.jsonl: No space left.*free some space"):
        writer.write({"n": 2, "text": "x" * 50})
    assert path.read_bytes() == b'{"n":1}\n'
    monkeypatch.setattr(os, "write", real)
    writer.write({"n": 3})
    writer.close()
    assert [record["n"] for record in read_jsonl(path)] == [1, 3]


def test_a_half_line_with_others_behind_it_is_closed_off(tmp_path, monkeypatch):
    """Another process wrote between the two halves: nothing of it may be cut away."""
    path = tmp_path / "a.jsonl"
    writer = JsonlWriter(path)
    real, calls = os.write, []

    def fills(descriptor, data):
        calls.append(data)
        if len(calls) == 1:
            done = real(descriptor, bytes(data)[:5])
            with path.open("ab") as other:
                other.write(b'\n{"n":"other"}\n')
            return done
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", fills)
    with pytest.raises(StoreError):
        writer.write({"n": 2})
    assert b'{"n":"other"}\n' in path.read_bytes()


def test_what_can_not_be_written_is_refused_with_the_file(tmp_path):
    loop: dict = {}
    loop["self"] = loop
    with pytest.raises(StoreError, match=r"a\.jsonl"):
        JsonlWriter(tmp_path / "a.jsonl").write(loop)
    assert not (tmp_path / "a.jsonl").exists()


def test_threads_lose_no_record(tmp_path):
    writer = JsonlWriter(tmp_path / "a.jsonl")

    def work(name):
        for number in range(200):
            writer.write({"thread": name, "n": number})

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    found = list(read_jsonl(writer.path))
    assert len(found) == 1200
    for name in range(6):
        assert [record["n"] for record in found if record["thread"] == name] == list(range(200))


def test_eight_processes_appending_at_once_lose_none_and_mix_none(tmp_path):
    path = tmp_path / "a.jsonl"
    script = (
        "import sys; from pathlib import Path; from evsys_record.jsonl import JsonlWriter\n"
        "writer = JsonlWriter(Path(sys.argv[1]))\n"
        "for n in range(150): writer.write({'p': int(sys.argv[2]), 'n': n, 'text': 'ж' * (n * 97 % 9000)})\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(process)]) for process in range(8)
    ]
    assert [child.wait(timeout=60) for child in children] == [0] * 8
    found = list(read_jsonl(path))
    assert len(found) == 1200
    for process in range(8):
        mine = [record for record in found if record["p"] == process]
        assert [record["n"] for record in mine] == list(range(150))
        assert all(record["text"] == "ж" * (record["n"] * 97 % 9000) for record in mine)


def test_a_line_is_scrubbed_before_it_is_written(tmp_path):
    with JsonlWriter(tmp_path / "a.jsonl", scrub=lambda text: text.replace("hush", "***")) as writer:
        writer.write({"a": "hush"})
    assert list(read_jsonl(tmp_path / "a.jsonl")) == [{"a": "***"}]


def test_a_durable_writer_syncs_each_record(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor) or real(descriptor))
    with JsonlWriter(tmp_path / "a.jsonl", durable=True) as writer:
        writer.write({})
        writer.write({})
    assert len(synced) == 2


def test_writing_after_close_opens_the_file_again(tmp_path):
    writer = JsonlWriter(tmp_path / "a.jsonl")
    writer.write({"n": 1})
    writer.close()
    writer.close()
    writer.write({"n": 2})
    writer.close()
    assert [record["n"] for record in read_jsonl(writer.path)] == [1, 2]
