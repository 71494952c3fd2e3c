"""With msgspec, rows and bytes are the same as without."""

import json
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_runtime.data import json_rows
from evsys_runtime.data.fast_json import WORTH_AFTER, Accelerator

pytest.importorskip("msgspec", reason="the extra evsys-runtime[fast] is not installed")

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def outcome(function, *arguments):
    try:
        return repr(function(*arguments))
    except (json_rows.BadRow, json_rows.DataError) as exc:
        return f"{type(exc).__name__}: {exc}"


def with_and_without(function, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        eager, absent = Accelerator(), Accelerator()
        eager.bring_in()
        patch.setattr(json_rows, "accelerator", eager)
        with_it = outcome(function, *arguments)
        patch.setattr(json_rows, "accelerator", absent)
        return with_it, outcome(function, *arguments)


@given(row=st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_rows_are_written_alike(row):
    with_it, without = with_and_without(json_rows.encode_row, row)
    assert with_it == without


@given(row=st.dictionaries(st.text(max_size=4), VALUES, max_size=4), ascii_only=st.booleans())
def test_rows_are_read_alike(row, ascii_only):
    raw = json.dumps(row, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    with_it, without = with_and_without(json_rows.decode_row, raw)
    assert with_it == without


@given(seed=st.integers(0, 2**32), changes=st.integers(1, 3))
def test_damaged_lines_are_refused_alike(seed, changes):
    draw = random.Random(seed)
    raw = bytearray('{"a":[1.5e3,-0,"\\ud83d\\ude00é"],"b":{"c":12345678901234567890123,"d":null}}'.encode())
    for _ in range(changes):
        at = draw.randrange(len(raw))
        raw[at : at + draw.randrange(2)] = draw.choice(
            [b"", b'"', b"\\", b"{", b"]", b"9", b"e", b",", b"\xff", b"."]
        )
    with_it, without = with_and_without(json_rows.decode_row, bytes(raw).strip() or b"{}")
    assert with_it == without


@pytest.mark.parametrize("value", [1e16, 1e-7, 5e-324, 0.1, -0.0, 1e15, 2**63, -(2**63), 2**64, 1e22])
def test_numbers_at_the_edges_are_written_alike(value):
    with_it, without = with_and_without(json_rows.encode_row, {"a": value})
    assert with_it == without


def test_it_is_brought_in_when_there_are_many_rows(monkeypatch):
    fresh = Accelerator()
    monkeypatch.setattr(json_rows, "accelerator", fresh)
    for number in range(WORTH_AFTER // 2):
        assert json_rows.decode_row(json_rows.encode_row({"a": number}).strip()) == {"a": number}
        assert (fresh.decode is None) == (fresh.encode is None) == (number + 1 < WORTH_AFTER // 2)


def test_a_small_file_is_read_without_importing_it():
    code = (
        "import sys\nfrom evsys_runtime.data.json_rows import decode_row\n"
        "for _ in range(100): decode_row(b'{}')\nsys.exit('msgspec' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rows_are_read_by_the_standard_library_where_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "msgspec", None)
    absent = Accelerator()
    absent.bring_in()
    monkeypatch.setattr(json_rows, "accelerator", absent)
    assert json_rows.decode_row(b'{"a":1}') == {"a": 1}
