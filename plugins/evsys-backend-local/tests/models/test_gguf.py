"""Every quantisation against formulas written out number by number."""

import struct

import numpy as np
import pytest

from evsys.errors import ConfigError, DataError
from evsys_backend_local.models.gguf import GgufFile
from evsys_backend_local.models.gguf_model import gguf_header, load_gguf
from evsys_backend_local.models.load import load_weights
from evsys_backend_local.models.quantisation import PACKINGS


def half(raw, at):
    return struct.unpack_from("<e", raw, at)[0]


def plain_q4_0(raw):
    d = half(raw, 0)
    out = [0.0] * 32
    for i in range(16):
        out[i] = d * ((raw[2 + i] & 0xF) - 8)
        out[i + 16] = d * ((raw[2 + i] >> 4) - 8)
    return out


def plain_q4_1(raw):
    d, m = half(raw, 0), half(raw, 2)
    out = [0.0] * 32
    for i in range(16):
        out[i] = d * (raw[4 + i] & 0xF) + m
        out[i + 16] = d * (raw[4 + i] >> 4) + m
    return out


def plain_q8_0(raw):
    d = half(raw, 0)
    return [d * struct.unpack_from("<b", raw, 2 + i)[0] for i in range(32)]


def plain_q6_k(raw):
    ql, qh, scales, d = raw[:128], raw[128:192], struct.unpack_from("<16b", raw, 192), half(raw, 208)
    out = [0.0] * 256
    for n in (0, 1):
        for i in range(32):
            high = qh[32 * n + i]
            for run, (low, shift) in enumerate(
                (
                    (ql[64 * n + i] & 0xF, 0),
                    (ql[64 * n + 32 + i] & 0xF, 2),
                    (ql[64 * n + i] >> 4, 4),
                    (ql[64 * n + 32 + i] >> 4, 6),
                )
            ):
                value = (low | ((high >> shift & 3) << 4)) - 32
                out[128 * n + 32 * run + i] = d * scales[8 * n + 2 * run + i // 16] * value
    return out


def plain_bf16(raw):
    return list(struct.unpack("<f", b"\0\0" + raw))


def k_scales(raw):
    """Six-bit scales and minima of the eight runs, as the reference's get_scale_min_k4 reads them."""
    q = raw[4:16]
    pairs = []
    for j in range(8):
        if j < 4:
            pairs.append((q[j] & 63, q[j + 4] & 63))
        else:
            pairs.append(((q[j + 4] & 0xF) | ((q[j - 4] >> 6) << 4), (q[j + 4] >> 4) | ((q[j] >> 6) << 4)))
    return pairs


def plain_q4_k(raw):
    d, m, scales = half(raw, 0), half(raw, 2), k_scales(raw)
    out = [0.0] * 256
    for run in range(8):
        for i in range(32):
            byte = raw[16 + 32 * (run // 2) + i]
            number = byte >> 4 if run % 2 else byte & 0xF
            out[32 * run + i] = d * scales[run][0] * number - m * scales[run][1]
    return out


def plain_q5_k(raw):
    d, m, scales = half(raw, 0), half(raw, 2), k_scales(raw)
    out = [0.0] * 256
    for run in range(8):
        for i in range(32):
            byte = raw[48 + 32 * (run // 2) + i]
            number = (byte >> 4 if run % 2 else byte & 0xF) + 16 * ((raw[16 + i] >> run) & 1)
            out[32 * run + i] = d * scales[run][0] * number - m * scales[run][1]
    return out


def plain_q5(raw, start):
    bits = int.from_bytes(raw[start : start + 4], "little")
    packed = raw[start + 4 :]
    low = [packed[i] & 0xF for i in range(16)] + [packed[i] >> 4 for i in range(16)]
    return [number + 16 * ((bits >> i) & 1) for i, number in enumerate(low)]


def plain_q5_0(raw):
    return [half(raw, 0) * (number - 16) for number in plain_q5(raw, 2)]


def plain_q5_1(raw):
    return [half(raw, 0) * number + half(raw, 2) for number in plain_q5(raw, 4)]


QUANTISED = {
    2: ("Q4_0", 32, 18, (0,), plain_q4_0),
    3: ("Q4_1", 32, 20, (0, 2), plain_q4_1),
    6: ("Q5_0", 32, 22, (0,), plain_q5_0),
    7: ("Q5_1", 32, 24, (0, 2), plain_q5_1),
    8: ("Q8_0", 32, 34, (0,), plain_q8_0),
    12: ("Q4_K", 256, 144, (0, 2), plain_q4_k),
    13: ("Q5_K", 256, 176, (0, 2), plain_q5_k),
    14: ("Q6_K", 256, 210, (208,), plain_q6_k),
    0: ("F32", 1, 4, None, lambda raw: list(struct.unpack("<f", raw))),
    1: ("F16", 1, 2, None, lambda raw: [half(raw, 0)]),
    30: ("BF16", 1, 2, None, plain_bf16),
}


@pytest.mark.parametrize("kind", list(QUANTISED), ids=[entry[0] for entry in QUANTISED.values()])
def test_blocks_are_dequantised_as_their_formula_says(tmp_path, gguf_writer, kind):
    _, numbers, size, halves, formula = QUANTISED[kind]
    rng = np.random.default_rng(kind)
    blocks = []
    for _ in range(12):
        raw = bytearray(rng.integers(0, 256, size, np.uint8).tobytes())
        if halves is None:
            value = float(rng.normal())
            raw = bytearray({4: struct.pack("<f", value), 2: struct.pack("<e", value)}[size])
            if kind == 30:
                raw = bytearray(struct.pack("<f", value)[2:])
        else:
            for at in halves:
                struct.pack_into("<e", raw, at, float(rng.normal()))
        blocks.append(bytes(raw))
    gguf_writer.write_gguf(tmp_path / "x.gguf", {"a": 1}, {"t": ((3, 4 * numbers), kind, b"".join(blocks))})
    expected = np.array([formula(raw) for raw in blocks], np.float64).reshape(3, 4 * numbers)
    tensor = GgufFile(tmp_path / "x.gguf").tensor("t")
    assert tensor.dtype == np.float32
    # Scale times number less minimum loses digits where both are close.
    np.testing.assert_allclose(tensor, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_metadata_of_every_shape_is_read(tmp_path, gguf_writer):
    values = {"text": "größe", "int": 7, "float": 0.5, "flag": True, "list": [1, -2], "names": ["a", "b"]}
    gguf_writer.write_gguf(tmp_path / "m.gguf", values, {})
    assert GgufFile(tmp_path / "m.gguf").metadata == values


def test_a_llama_model_is_loaded_with_its_heads_in_order(tmp_path, gguf_writer, small_weights):
    gguf_writer.write_model(tmp_path / "model.gguf", small_weights)
    loaded = load_weights(tmp_path)
    assert loaded.shape == small_weights.shape
    for name, array in small_weights.params.items():
        np.testing.assert_array_equal(loaded.params[name], array, err_msg=name)


def test_every_supported_kind_has_its_formula_here():
    assert {kind: entry[:3] for kind, entry in QUANTISED.items()} == {
        kind: (packing.name, packing.numbers, packing.size) for kind, packing in PACKINGS.items()
    }


@pytest.mark.parametrize("cut", [3, 20, 60, 3000])
def test_a_file_that_was_cut_off_is_named(tmp_path, gguf_writer, small_weights, cut):
    path = tmp_path / "cut.gguf"
    gguf_writer.write_model(path, small_weights)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"cut\.gguf"):
        load_gguf(GgufFile(path))


def test_a_file_cut_off_inside_the_weights_is_named(tmp_path, gguf_writer, small_weights):
    path = tmp_path / "cut.gguf"
    gguf_writer.write_model(path, small_weights)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match="cut off"):
        load_gguf(GgufFile(path))


def test_nan_in_the_weights_is_an_error(tmp_path, gguf_writer, small_weights):
    small_weights.layers[1].down[2, 3] = np.nan
    gguf_writer.write_model(tmp_path / "nan.gguf", small_weights)
    with pytest.raises(DataError, match=r"layers\.1\.mlp\.down_proj\.weight hold NaN"):
        load_weights(tmp_path / "nan.gguf")


def test_an_unknown_quantisation_is_named(tmp_path, gguf_writer):
    gguf_writer.write_gguf(tmp_path / "x.gguf", {"a": 1}, {"t": ((1, 256), 10, bytes(84))})
    with pytest.raises(DataError, match="t is quantised as Q2_K, which isn.t supported; F32"):
        GgufFile(tmp_path / "x.gguf").tensor("t")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general.architecture": "gemma3"}, "architecture 'gemma3'.*Tinker protocol"),
        ({"llama.rope.scaling.type": "yarn"}, "scaling of rotary positions.*Tinker protocol"),
        ({"llama.expert_count": 8}, "mixture of experts.*runs Llama.*Tinker protocol"),
        ({"llama.rope.dimension_count": 2}, "rotation of 2 of 4 numbers.*Tinker protocol"),
    ],
)
def test_an_unsupported_model_names_the_route_that_works(
    tmp_path, gguf_writer, small_weights, metadata, message
):
    gguf_writer.write_model(tmp_path / "m.gguf", small_weights, **metadata)
    with pytest.raises(ConfigError, match=message):
        gguf_header(GgufFile(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general.architecture": "qwen2"}, "damaged: metadata qwen2.embedding_length is missing"),
        ({"llama.block_count": 0}, "damaged: metadata llama.block_count is 0, not a whole number above 0"),
        ({"llama.rope.freq_base": "x"}, "damaged: metadata llama.rope.freq_base is 'x'"),
        ({"llama.attention.head_count_kv": 3}, "makes no sense: .*4 heads are not a multiple of 3"),
        ({"llama.block_count": True}, "damaged: metadata llama.block_count is True"),
        ({"llama.block_count": 10**9}, "says 1,000,000,000 blocks; no model has more than 10,000"),
        ({"llama.attention.key_length": 2**31}, "says 2,147,483,648 numbers a head"),
        ({"llama.rope.freq_base": float("inf")}, "damaged: metadata llama.rope.freq_base is inf"),
        ({"general.alignment": 0}, "damaged: general.alignment is 0"),
        ({"general.alignment": "x"}, "damaged: general.alignment is 'x'"),
    ],
)
def test_metadata_that_makes_no_sense_is_named(tmp_path, gguf_writer, small_weights, metadata, message):
    gguf_writer.write_model(tmp_path / "m.gguf", small_weights, **metadata)
    with pytest.raises(DataError, match=message):
        gguf_header(GgufFile(tmp_path / "m.gguf"))


def test_heads_that_the_weights_do_not_have_are_named(tmp_path, gguf_writer, small_weights):
    gguf_writer.write_model(tmp_path / "m.gguf", small_weights, **{"llama.attention.head_count": 8})
    with pytest.raises(DataError, match="q_proj.weight has shape"):
        load_weights(tmp_path)


def text(value):
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    ("tensors", "body"),
    [
        (0, text(b"a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 20_000),  # lists in lists in lists
        (0, text(b"a") + struct.pack("<IQ", 8, 1 << 62)),
        (0, text(b"a") + struct.pack("<IIQ", 9, 0, 1 << 62)),
        (0, text(b"a") + struct.pack("<IIQ", 9, 8, 1 << 62)),
        (1, text(b"t") + struct.pack("<IIQ", 0, 0, 0)),  # no sizes
        (1, text(b"t") + struct.pack("<I", (1 << 32) - 1)),
    ],
)
def test_a_header_that_claims_more_than_the_file_holds_is_damaged(tmp_path, tensors, body):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, 1 - tensors) + body + bytes(64))
    with pytest.raises(DataError, match="damaged: the header breaks"):
        GgufFile(path)


@pytest.mark.parametrize("sizes", [(1 << 32, 1 << 32), (1 << 63,)])
def test_a_tensor_larger_than_the_file_is_cut_off(tmp_path, gguf_writer, sizes):
    gguf_writer.write_gguf(tmp_path / "m.gguf", {"a": 1}, {"t": (sizes, 0, bytes(64))})
    file = GgufFile(tmp_path / "m.gguf")
    assert file.needed > 1 << 60
    with pytest.raises(DataError, match="cut off: t"):
        file.tensor("t")


def test_a_window_in_the_metadata_bounds_the_context_up_to_which_all_readers_agree(
    tmp_path, gguf_writer, small_weights
):
    gguf_writer.write_model(tmp_path / "m.gguf", small_weights, **{"llama.attention.sliding_window": 24})
    header = gguf_header(GgufFile(tmp_path / "m.gguf"))
    assert (header.shape.max_context, header.shape.window, header.declared_context) == (24, None, 64)
    assert "24 tokens" in header.context_reason
