import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evsys.errors import DataError
from evsys_backend_local.models.safetensors import SafetensorsFile, write_safetensors

DTYPES = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "|u1", "|b1"]).map(np.dtype)
ARRAYS = DTYPES.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)))


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda s: s != "__metadata__"), ARRAYS, max_size=4)
)
def test_what_is_written_is_read_back(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("st") / "a.safetensors"
    write_safetensors(path, arrays, {"step": "3"})
    file = SafetensorsFile(path)
    assert set(file) == set(arrays)
    assert file.metadata == {"step": "3"}
    for name, array in arrays.items():
        assert file[name].dtype == array.dtype
        np.testing.assert_array_equal(file[name], array)
    assert [p.name for p in path.parent.iterdir()] == ["a.safetensors"]


def test_bfloat16_is_widened(tmp_path):
    values = np.array([1.5, -2.0, 0.0078125], np.float32)
    raw = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps({"x": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}).encode()
    path = tmp_path / "b.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw)
    np.testing.assert_array_equal(SafetensorsFile(path)["x"], values)


def header_only(entry):
    text = json.dumps({"x": entry}).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234567",
        (1 << 40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{]",
        (2).to_bytes(8, "little") + b"[]",
    ],
)
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.safetensors"):
        SafetensorsFile(path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "its arrays need"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 1]}, "does not fit"),
        ({"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}, "F8_E4M3"),
        ({"dtype": "F32", "shape": [1 << 32, 1 << 32], "data_offsets": [0, 0]}, "does not fit"),
        *[
            (entry, "entry of x makes no sense")
            for entry in (
                5,
                {"shape": [0], "data_offsets": [0, 0]},
                {"dtype": ["F32"], "shape": [0], "data_offsets": [0, 0]},
                {"dtype": "F32", "data_offsets": [0, 0]},
                {"dtype": "F32", "shape": 0, "data_offsets": [0, 0]},
                {"dtype": "F32", "shape": [-1, 0], "data_offsets": [0, 0]},
                {"dtype": "F32", "shape": [True], "data_offsets": [0, 1]},
                {"dtype": "F32", "shape": [0]},
                {"dtype": "F32", "shape": [0], "data_offsets": [0]},
                {"dtype": "F32", "shape": [0], "data_offsets": ["0", "0"]},
                {"dtype": "F32", "shape": [0], "data_offsets": [1, 0]},
            )
        ],
    ],
)
def test_an_array_that_cannot_be_read_is_named(tmp_path, entry, message):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(header_only(entry) + b"\0")
    with pytest.raises(DataError, match=message):
        SafetensorsFile(path)["x"]


def test_arrays_in_the_same_place_are_damage(tmp_path):
    entries = {
        name: {"dtype": "F32", "shape": [2], "data_offsets": [at, at + 8]}
        for name, at in (("x", 0), ("y", 4))
    }
    text = json.dumps(entries).encode()
    path = tmp_path / "both.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    with pytest.raises(DataError, match="x and y lie in the same place"):
        SafetensorsFile(path)


def test_a_header_nested_beyond_all_bounds_is_damage(tmp_path):
    text = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    path = tmp_path / "deep.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(DataError, match="not JSON"):
        SafetensorsFile(path)


def test_a_type_that_the_format_lacks_is_refused_and_nothing_is_left(tmp_path):
    with pytest.raises(ValueError, match="complex"):
        write_safetensors(tmp_path / "a", {"x": np.zeros(2, complex)})
    assert list(tmp_path.iterdir()) == []
