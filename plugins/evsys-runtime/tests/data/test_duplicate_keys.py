"""A key that an object gives twice is found at whatever depth, however the text is written, and only then."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import DataError
from evsys_runtime.data import json_rows
from evsys_runtime.data.duplicate_keys import refuse_duplicate_keys
from evsys_runtime.data.fast_json import Accelerator
from evsys_runtime.data.json_rows import BadRow
from evsys_runtime.data.readers import ReadReport, read_rows

# Characters that the counting could stumble over.
TEXTS = st.text(st.sampled_from('ab:"\\ \té{},'), max_size=6)
SPACES = st.sampled_from(["", "", "", " ", "\t", " \r"])


@st.composite
def objects(draw: Any, depth: int = 2) -> tuple[str, bool]:
    """The JSON text of an object, and whether one in it has a key twice."""
    text, twice, keys = [], False, []
    for key in draw(st.lists(TEXTS, max_size=4)):
        twice = twice or key in keys
        keys.append(key)
        value, inner = draw(values(depth))
        twice = twice or inner
        escaped = json.dumps(key, ensure_ascii=draw(st.booleans()))
        text.append(f"{draw(SPACES)}{escaped}{draw(SPACES)}:{draw(SPACES)}{value}{draw(SPACES)}")
    return f"{{{','.join(text)}}}", twice


@st.composite
def values(draw: Any, depth: int) -> tuple[str, bool]:
    kinds = ["text", "number", "list", "object"] if depth else ["text", "number"]
    match draw(st.sampled_from(kinds)):
        case "text":
            return json.dumps(draw(TEXTS), ensure_ascii=draw(st.booleans())), False
        case "number":
            return draw(st.sampled_from(["1", "-2.5e3", "null", "true"])), False
        case "list":
            items = draw(st.lists(values(depth - 1), max_size=3))
            return f"[{','.join(text for text, _ in items)}]", any(twice for _, twice in items)
        case _:
            return draw(objects(depth - 1))


@given(objects())
def test_the_quick_look_misses_none_and_invents_none(drawn: tuple[str, bool]):
    text, twice = drawn
    try:
        refuse_duplicate_keys(text.encode("utf-8"), json.loads(text))
    except BadRow:
        found = True
    else:
        found = False
    assert found is twice


@pytest.fixture(params=["with msgspec", "without"])
def decoder(request, monkeypatch):
    chosen = Accelerator()
    if request.param == "with msgspec":
        pytest.importorskip("msgspec")
        chosen.bring_in()
    monkeypatch.setattr(json_rows, "accelerator", chosen)


TWICE = '{"prompt": "a", "completion": "b", "prompt": "c"}'
NESTED = '{"messages": [{"role": "user", "content": "see https://example.org/?a: b", "role": "system"}]}'


@pytest.mark.parametrize(("row", "key"), [(TWICE, "prompt"), (NESTED, "role")])
@pytest.mark.parametrize("name", ["t.jsonl", "t.json"])
def test_a_row_with_a_key_given_twice_is_an_error_with_its_line(tmp_path, decoder, name, row, key):
    good = '{"prompt": "x", "completion": "y"}'
    text = f"{good}\n{row}\n" if name.endswith("l") else f"[{good},\n{row}]"
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=f"the key '{key}' is given twice") as caught:
        list(read_rows(tmp_path / name))
    assert caught.value.line == 2


@pytest.mark.parametrize("name", ["t.jsonl", "t.json"])
def test_such_rows_are_left_out_and_counted_where_that_is_asked_for(tmp_path, decoder, name):
    report = ReadReport()
    text = f'{TWICE}\n{{"prompt": "x: \\"y\\": z"}}\n{NESTED}\n'
    (tmp_path / name).write_text(text, encoding="utf-8")
    rows = list(read_rows(tmp_path / name, on_bad_row="skip", report=report))
    assert rows == [{"prompt": 'x: "y": z'}]
    assert report.skipped == {"a key given twice": 2}


def test_a_byte_order_mark_hides_no_key(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(b"\xef\xbb\xbf" + TWICE.encode())
    with pytest.raises(DataError, match="'prompt' is given twice"):
        list(read_rows(tmp_path / "t.jsonl"))
