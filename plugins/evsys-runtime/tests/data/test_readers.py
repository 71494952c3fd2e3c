"""Files to rows: what is a row, what is not, and where it stands."""

import csv
import io
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import DataError
from evsys_runtime.data import json_array
from evsys_runtime.data.json_rows import BadRow, canonical, decode_row, encode_row
from evsys_runtime.data.readers import ReadReport, read_rows

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["\u2028", "a\u2029b", "\x85", "\x0b\x0c\x1c\x1d\x1e", "😀", "\ufeff", "\r", "\n", "\t"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), min_size=1, max_size=5)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


# --- round trips ------------------------------------------------------------------------------------------------


@given(rows=ROWS, ascii_only=st.booleans(), end=st.sampled_from(["\n", "\r\n", "\n\n", " \n"]))
def test_any_objects_come_back_from_json_lines(tmp_path_factory, rows, ascii_only, end):
    text = end.join(json.dumps(row, ensure_ascii=ascii_only) for row in rows)
    path = write(tmp_path_factory.mktemp("rows") / "rows.jsonl", text)
    assert list(read_rows(path)) == rows


@given(rows=ROWS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]), chunk=st.integers(1, 40))
def test_any_objects_come_back_from_a_json_array_wherever_chunks_end(
    tmp_path_factory, rows, ascii_only, indent, chunk
):
    text = json.dumps(rows, ensure_ascii=ascii_only, indent=indent)
    path = write(tmp_path_factory.mktemp("rows") / "rows.json", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "_CHUNK", chunk)
        assert list(read_rows(path)) == rows


@given(
    rows=st.lists(st.lists(TEXTS.filter(lambda text: "\r" not in text), min_size=2, max_size=2), max_size=5),
    delimiter=st.sampled_from([",", ";", "\t"]),
)
def test_any_texts_come_back_from_csv(tmp_path_factory, rows, delimiter):
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator="\r\n")
    writer.writerows([["first", "second"], ["x", "y"], *rows])
    path = write(tmp_path_factory.mktemp("rows") / "rows.csv", buffer.getvalue())
    expected = [{"first": "x", "second": "y"}, *({"first": a, "second": b} for a, b in rows if a or b)]
    assert list(read_rows(path)) == expected


@given(row=st.dictionaries(TEXTS, VALUES, max_size=4))
def test_an_encoded_row_is_one_line_and_decodes_to_itself(row):
    line = encode_row(row)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_row(line[:-1]) == row


@given(row=st.dictionaries(TEXTS, VALUES, min_size=2, max_size=4))
def test_canonical_bytes_ignore_the_order_of_columns(row):
    assert canonical(row) == canonical(dict(reversed(row.items())))


# --- lines ------------------------------------------------------------------------------------------------------


def test_unicode_line_separators_stay_inside_their_row(tmp_path):
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    path = write(
        tmp_path / "rows.jsonl", json.dumps({"text": text}, ensure_ascii=False).replace("\\u000b", "\\u000b")
    )
    assert list(read_rows(path)) == [{"text": text}]


def test_byte_order_mark_crlf_and_blank_lines_are_no_problem(tmp_path):
    path = write(tmp_path / "rows.jsonl", b'\xef\xbb\xbf{"a": 1}\r\n\r\n   \n{"a": 2}')
    report = ReadReport()
    assert list(read_rows(path, report=report)) == [{"a": 1}, {"a": 2}]
    assert (report.rows, report.blank, report.line) == (2, 2, 4)


def test_a_byte_order_mark_inside_glued_files_is_passed_over(tmp_path):
    path = write(tmp_path / "rows.jsonl", b'{"a": 1}\n\xef\xbb\xbf{"a": 2}\n')
    assert [row["a"] for row in read_rows(path)] == [1, 2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1', "not valid JSON: expecting ',' delimiter at column 8, where the text ends"),
        ("{'a': 1}", "expecting property name enclosed in double quotes at column 2"),
        ('{"a": 1} {"a": 2}', "expected the end of the line at column 9, before ' {\"a\": 2}'"),
        ("[]", "a row must be an object of columns, got a list"),
        ("null", "got null"),
        ("3", "got a number"),
        ("true", "got true or false"),
        ('"text"', "got a string"),
        ("nonsense", "not valid JSON"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": "\\ud83d"}', "half a surrogate pair"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "a number has thousands of digits; write it as a string"),
        ('{"a": "x', "not valid JSON: unterminated string starting at column 7"),
        (b'{"a": "caf\xe9"}', "not UTF-8 (byte 0xe9 at position 10)"),
    ],
)
def test_a_bad_row_is_named_by_file_and_physical_line(tmp_path, line, message):
    raw = line if isinstance(line, bytes) else line.encode()
    path = write(tmp_path / "rows.jsonl", b'{"a": 0}\n\n\n' + raw + b'\n{"a": 5}\n')
    with pytest.raises(DataError) as caught:
        list(read_rows(path))
    assert caught.value.line == 4
    assert caught.value.source == str(path)
    assert str(caught.value).startswith(f"{path}:4: ")
    assert message in str(caught.value)
    assert "on_bad_row: skip" in str(caught.value)


def test_an_escaped_backslash_before_u_is_no_surrogate(tmp_path):
    path = write(tmp_path / "rows.jsonl", r'{"a": "\\ud83d", "b": "\ud83d\ude00"}')
    assert list(read_rows(path)) == [{"a": r"\ud83d", "b": "😀"}]


def test_bad_rows_can_be_skipped_and_are_counted_by_kind(tmp_path):
    path = write(tmp_path / "rows.jsonl", b'{"a": 1}\n[]\n{"a"\nnull\n\n{"a": 2}\n{"b": "\xff"}\n')
    report = ReadReport()
    assert list(read_rows(path, on_bad_row="skip", report=report)) == [{"a": 1}, {"a": 2}]
    assert report.skipped == {"not an object": 2, "not valid JSON": 1, "not UTF-8": 1}
    assert [line for line, _, _ in report.problems] == [2, 3, 4, 7]


def test_a_file_of_nothing_but_bad_rows_is_an_error_even_when_skipping(tmp_path):
    path = write(tmp_path / "rows.jsonl", "[]\n{\n")
    with pytest.raises(DataError, match=r"no row can be read.*not an object: 1") as caught:
        list(read_rows(path, on_bad_row="skip"))
    assert caught.value.line == 1


def test_an_array_in_a_jsonl_file_gets_a_hint(tmp_path):
    path = write(tmp_path / "rows.jsonl", '[{"a": 1}]')
    with pytest.raises(DataError, match="source_kind: json"):
        list(read_rows(path))


def test_big_integers_keep_every_digit(tmp_path):
    path = write(tmp_path / "rows.jsonl", '{"a": 123456789012345678901234567890, "b": -9223372036854775809}')
    assert list(read_rows(path)) == [{"a": 123456789012345678901234567890, "b": -9223372036854775809}]


def test_the_report_follows_the_row_that_was_handed_out(tmp_path):
    path = write(tmp_path / "rows.jsonl", '\n{"a": 1}\n\n{"a": 2}\n')
    report = ReadReport()
    lines = [report.place() for _ in read_rows(path, report=report)]
    assert lines == [f"{path}:2", f"{path}:4"]


# --- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "is empty"),
        ("a.csv", b"", "is empty"),
        ("a.json", b"", "is empty"),
        ("a.jsonl", b"\xef\xbb\xbf", "is empty but for a byte order mark"),
        ("a.json", b"\xef\xbb\xbf", "is empty but for a byte order mark"),
        ("a.csv", b"\xef\xbb\xbf", "is empty but for a byte order mark"),
        ("a.json", b"[]", "holds no rows"),
        ("a.jsonl", b"\n \n", "holds no rows"),
        ("a.csv", b"first,second\n", "holds no rows"),
        ("a.jsonl", '{"a": 1}'.encode("utf-16"), "is UTF-16"),
        ("a.jsonl", b"\x1f\x8b\x08\x00", "compressed with gzip"),
        ("a.csv", b"PK\x03\x04....", "zip archive or a spreadsheet"),
    ],
)
def test_a_file_without_rows_says_why(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message):
        list(read_rows(write(tmp_path / name, content)))


def test_a_missing_file_names_what_is_there(tmp_path):
    write(tmp_path / "train.jsonl", "{}")
    with pytest.raises(DataError, match=r"trian\.jsonl: no such file; the folder has train\.jsonl"):
        list(read_rows(tmp_path / "trian.jsonl"))


def test_a_folder_is_no_file_and_its_files_are_named(tmp_path):
    write(tmp_path / "train.jsonl", "{}")
    with pytest.raises(DataError, match=r"is a folder.*train\.jsonl"):
        list(read_rows(tmp_path, format="jsonl"))


def test_an_unknown_suffix_names_the_known_ones(tmp_path):
    with pytest.raises(DataError, match=r"no format is known for the suffix '\.parquet'; known are \.csv"):
        read_rows(tmp_path / "rows.parquet")


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(DataError, match="no format 'xml'; known are jsonl, json, csv"):
        read_rows(tmp_path / "rows.jsonl", format="xml")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("a.jsonl.gz", "gunzip -k a.jsonl.gz"),
        ("a.csv.zip", "unzip a.csv.zip"),
        ("a.json.ZST", "unzstd a.json.ZST"),
    ],
)
def test_a_compressed_file_comes_with_the_command_that_unpacks_it(tmp_path, name, command):
    (tmp_path / name).write_bytes(b"\x1f\x8b")
    with pytest.raises(DataError, match=f"unpack it first, with `{command}`, and name the unpacked file"):
        list(read_rows(tmp_path / name))


def test_the_format_can_be_named_against_the_suffix(tmp_path):
    assert list(read_rows(write(tmp_path / "rows.txt", '{"a": 1}'), format="jsonl")) == [{"a": 1}]


def test_reading_needs_no_utf8_locale(tmp_path):
    path = write(tmp_path / "rows.jsonl", '{"a": "😀 žluť"}')
    code = (
        "import sys; from evsys_runtime.data.readers import read_rows;"
        "from evsys_runtime.data.dataset import MaterializedDataset; from pathlib import Path;"
        "rows = [{'prompt': 'q', 'completion': row['a']} for row in read_rows(sys.argv[1])];"
        "data = MaterializedDataset.from_rows(rows, 'chat', memory_limit=1, spool_dir=Path(sys.argv[2]));"
        "data.save(Path(sys.argv[2], 'out.jsonl')); print(ascii(data[0].messages[1].content))"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    strict = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    done = subprocess.run(
        [sys.executable, *strict, "-c", code, str(path), str(tmp_path)],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == ascii("😀 žluť")
    assert "😀 žluť" in (tmp_path / "out.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv"])
def test_memory_does_not_grow_with_the_file(tmp_path, name):
    path, text, count = tmp_path / name, "x" * 1000, 8000
    with path.open("w", encoding="utf-8") as stream:
        if name.endswith("csv"):
            stream.write("text\n" + f"{text}\n" * count)
        elif name.endswith("jsonl"):
            stream.write(f'{{"text": "{text}"}}\n' * count)
        else:
            stream.write("[" + ",\n".join([f'{{"text": "{text}"}}'] * count) + "]")
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_rows(path)) == count
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**20
    finally:
        tracemalloc.stop()


# --- json -------------------------------------------------------------------------------------------------------


def test_one_object_is_one_row(tmp_path):
    assert list(read_rows(write(tmp_path / "row.json", '{\n "a": {"b": 1}\n}\n'))) == [{"a": {"b": 1}}]


def test_a_byte_order_mark_before_an_array_is_no_problem(tmp_path):
    assert list(read_rows(write(tmp_path / "rows.json", b'\xef\xbb\xbf [{"a": 1}]'))) == [{"a": 1}]


def test_a_number_too_big_for_a_float_is_named(tmp_path):
    path = write(tmp_path / "rows.jsonl", '{"a": 1e999, "b": "\\ud83d\\ude00"}')
    with pytest.raises(DataError, match=r"rows\.jsonl:1: a number has no finite value"):
        list(read_rows(path))


@pytest.mark.parametrize("number", ["1e999", "-1e999", '[1, {"b": 1e400}]'])
def test_a_number_too_big_for_a_float_is_a_bad_row(tmp_path, number):
    path = write(tmp_path / "rows.jsonl", f'{{"a": 1}}\n{{"a": {number}}}\n{{"a": 2.5}}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl:2: a number has no finite value: -?1e"):
        list(read_rows(path))
    report = ReadReport()
    assert list(read_rows(path, on_bad_row="skip", report=report)) == [{"a": 1}, {"a": 2.5}]
    assert report.skipped == {"not valid JSON": 1}


def test_a_number_too_big_for_a_float_in_an_array_is_named(tmp_path):
    path = write(tmp_path / "rows.json", '[{"a": 1},\n{"a": 1e999}]')
    with pytest.raises(DataError, match="a number has no finite value: 1e999") as caught:
        list(read_rows(path))
    assert caught.value.line == 2


def test_an_integer_with_too_many_digits_in_an_array_is_named(tmp_path):
    path = write(tmp_path / "rows.json", '[{"a": 1},\n{"a": ' + "9" * 5000 + "}]")
    with pytest.raises(DataError, match="thousands of digits") as caught:
        list(read_rows(path))
    assert caught.value.line == 2


def test_objects_one_after_the_other_are_rows(tmp_path):
    report = ReadReport()
    rows = read_rows(write(tmp_path / "rows.json", '{"a": 1}\n{"a": 2}\n'), report=report)
    assert list(rows) == [{"a": 1}, {"a": 2}]
    assert report.line == 2


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[\n{"a": 1},\n{"a": }\n]', 3, "expecting value"),
        ('[\n{"a": 1}\n{"a": 2}]', 3, "expected a comma or the end of the array"),
        ('[\n{"a": 1},\n', 3, "expecting value"),
        ('[\n{"a": 1}\n', 3, "expected the end of the array"),
        ('[{"a": 1}]\n\n x', 3, "expected nothing after the array"),
        ('[{"a": 1},\n{"a": "unclosed', 2, "unterminated string"),
        ('[{"a": NaN}]', 1, "NaN is not JSON"),
    ],
)
def test_a_broken_array_names_the_line(tmp_path, text, line, message):
    with pytest.raises(DataError, match=message) as caught:
        list(read_rows(write(tmp_path / "rows.json", text)))
    assert caught.value.line == line


def test_a_broken_byte_in_an_array_names_the_line(tmp_path):
    with pytest.raises(DataError, match="not UTF-8") as caught:
        list(read_rows(write(tmp_path / "rows.json", b'[{"a": 1},\n{"a": "\xff"}]')))
    assert caught.value.line == 2


def test_elements_that_are_no_rows_follow_the_policy(tmp_path):
    path = write(tmp_path / "rows.json", '[{"a": 1},\n 12,\n "x",\n {"b": "\\ud800"},\n{"a": 2}]')
    with pytest.raises(DataError, match="a row must be an object") as caught:
        list(read_rows(path))
    assert caught.value.line == 2
    report = ReadReport()
    assert list(read_rows(path, on_bad_row="skip", report=report)) == [{"a": 1}, {"a": 2}]
    assert report.skipped == {"not an object": 2, "not valid text": 1}


def test_a_long_malformed_array_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"a": 1},\n{"a" 1},\n' + '{"a": 1},\n' * 200_000, encoding="utf-8")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="expecting ':' delimiter"):
            list(read_rows(path))
        assert tracemalloc.get_traced_memory()[1] < 2 * 2**20
    finally:
        tracemalloc.stop()


# --- csv --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n",
        "a;b\n1;2\n",
        "a\tb\n1\t2\n",
        "\ufeffa,b\r\n1,2\r\n",
        "sep=;\na;b\n1;2",
        "\n\na|b\n1|2\n|\n",
    ],
)
def test_spreadsheet_dialects_are_understood(tmp_path, text):
    assert list(read_rows(write(tmp_path / "rows.csv", text))) == [{"a": "1", "b": "2"}]


def test_tsv_is_read_by_tabs_whatever_the_header_holds(tmp_path):
    path = write(tmp_path / "rows.tsv", "a, or so\tb\nx,y\tz\n")
    assert list(read_rows(path)) == [{"a, or so": "x,y", "b": "z"}]


def test_quoted_line_ends_stay_in_the_field_and_lines_are_physical(tmp_path):
    path = write(tmp_path / "rows.csv", 'a,b\n"one\ntwo",x\n\n3,4\n5,6,7\n')
    report = ReadReport()
    rows = read_rows(path, report=report)
    assert (next(rows), report.line) == ({"a": "one\ntwo", "b": "x"}, 2)
    assert (next(rows), report.line) == ({"a": "3", "b": "4"}, 5)
    with pytest.raises(DataError, match="3 fields where the header has 2") as caught:
        next(rows)
    assert caught.value.line == 6


def test_empty_records_and_empty_extra_fields_are_passed_over(tmp_path):
    report = ReadReport()
    path = write(tmp_path / "rows.csv", "a,b,,\n1,2,,\n,,,\n3,4\n")
    assert list(read_rows(path, report=report)) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert report.blank == 1


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"a,b\n1\n", 2, "1 fields where the header has 2"),
        (b'a,b\n1,2\n"x,3\n4,5\n', 3, "a quote that opens here is never closed"),
        (b'a,b\n"x"y,3\n', 2, "not valid CSV"),
        (b"a,b\n1,caf\xe9\n", 2, "not UTF-8"),
        (b"a,b\r1,2\r3,4", 1, "a carriage return alone ends a line"),
        (b"caf\xe9,b\n1,2\n", 1, "not UTF-8"),
        (b"a,,b\n1,2,3\n", 1, "column 2 of the header has no name"),
        (b"a,b,a\n1,2,3\n", 1, "the header names a column twice: a"),
    ],
)
def test_broken_csv_names_the_line(tmp_path, content, line, message):
    with pytest.raises(DataError, match=message) as caught:
        list(read_rows(write(tmp_path / "rows.csv", content)))
    assert caught.value.line == line


def test_broken_records_can_be_skipped(tmp_path):
    report = ReadReport()
    path = write(tmp_path / "rows.csv", b'a,b\n1,2\n1,2,3\n"x"y,1\nz\xff,1\n3,4\n')
    assert list(read_rows(path, on_bad_row="skip", report=report)) == [
        {"a": "1", "b": "2"},
        {"a": "3", "b": "4"},
    ]
    assert report.skipped == {"wrong number of fields": 1, "not valid CSV": 1, "not UTF-8": 1}


def test_fields_longer_than_the_csv_module_likes_are_read(tmp_path):
    text = "x" * 200_000
    assert list(read_rows(write(tmp_path / "rows.csv", f"a,b\n{text},1\n"))) == [{"a": text, "b": "1"}]


# --- writing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ({1, 2}, "a set"),
        (b"bytes", "a bytes"),
        ("\ud83d", "half a surrogate pair"),
    ],
)
def test_what_json_cannot_hold_is_named_by_row_and_column(value, message):
    with pytest.raises(DataError, match=f"row 7: column 'bad' holds.*{message}"):
        encode_row({"good": 1, "bad": value}, what="row 7")


def test_other_mappings_and_numpy_scalars_are_written_as_what_they_stand_for():
    numpy = pytest.importorskip("numpy")
    row = {"a": numpy.float32(0.5), "b": numpy.int64(3), "c": (1, 2)}
    assert encode_row(row) == b'{"a":0.5,"b":3,"c":[1,2]}\n'
    with pytest.raises(DataError, match="a ndarray"):
        encode_row({"a": numpy.zeros(2)})


def test_bad_rows_know_their_kind():
    with pytest.raises(BadRow) as caught:
        decode_row(b"[1]")
    assert caught.value.kind == "not an object"
