"""How GGUF files pack numbers: each kind's block, and the way from its bytes to floating point.

Layouts are those of `ggml-common.h` and `ggml-quants.c` in https://github.com/ggml-org/ggml. Throughout, ``d`` is a block's
scale and ``m`` its minimum; "nibbles" are the two halves of a byte.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_backend_local.engine.arrays import Array

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@attrs.frozen
class Packing:
    """One kind: ``numbers`` in ``size`` bytes, and ``decode`` from ``[blocks, size]`` to ``[blocks, numbers]``."""

    name: str
    numbers: int
    size: int
    decode: Callable[[Bytes], Array]


def _half(blocks: Bytes, at: int) -> Floats:
    """float16 at byte ``at`` of every block, as float32 ``[blocks, 1]``."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _f32(blocks: Bytes) -> Array:
    return blocks.view("<f4")


def _f16(blocks: Bytes) -> Array:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Array:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """``[blocks, 16]`` bytes to ``[blocks, 32]``: the low halves come first, then the high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """``[blocks, 4]`` bytes to ``[blocks, 32]`` bits, each worth 16."""
    bits = np.ascontiguousarray(packed).view("<u4") >> np.arange(32, dtype=np.uint32)
    return ((bits & 1) << 4).astype(np.uint8)


def _q4_0(blocks: Bytes) -> Array:
    return (_nibbles(blocks[:, 2:18]).astype(np.float32) - 8) * _half(blocks, 0)


def _q4_1(blocks: Bytes) -> Array:
    return _nibbles(blocks[:, 4:20]) * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Array:
    numbers = _nibbles(blocks[:, 6:22]) | _fifth_bits(blocks[:, 2:6])
    return (numbers.astype(np.float32) - 16) * _half(blocks, 0)


def _q5_1(blocks: Bytes) -> Array:
    numbers = _nibbles(blocks[:, 8:24]) | _fifth_bits(blocks[:, 4:8])
    return numbers * _half(blocks, 0) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Array:
    return blocks[:, 2:34].view(np.int8).astype(np.float32) * _half(blocks, 0)


def _scales_and_minima(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight 6-bit scales and eight 6-bit minima, each ``[blocks, 8]``, out of 12 bytes.

    The first four of each are the low 6 bits of bytes 0 to 3 and 4 to 7. The last four have their low nibbles in
    bytes 8 to 11, and their upper two bits in the spare top bits of the first eight bytes.
    """
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (rest & 15) | ((first >> 6) << 4)], axis=1)
    minima = np.concatenate([second & 63, (rest >> 4) | ((second >> 6) << 4)], axis=1)
    return scales, minima


def _runs_of_32(blocks: Bytes, numbers: Bytes) -> Array:
    """256 unsigned numbers in eight runs of 32, each with a scale and a minimum of its own."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    runs: Array = numbers.reshape(-1, 8, 32) * (scales * _half(blocks, 0))[:, :, None]
    runs -= (minima * _half(blocks, 2))[:, :, None]
    return runs.reshape(-1, 256)


def _k_nibbles(packed: Bytes) -> Bytes:
    """``[blocks, 128]`` bytes to ``[blocks, 4, 2, 32]``: of each 32 bytes first the low, then the high halves."""
    groups = packed.reshape(-1, 4, 32)
    return np.stack([groups & 15, groups >> 4], axis=2)


def _q4_k(blocks: Bytes) -> Array:
    return _runs_of_32(blocks, _k_nibbles(blocks[:, 16:144]))


def _q5_k(blocks: Bytes) -> Array:
    # Bit r of byte i is the fifth bit of number i of run r.
    bits = np.unpackbits(blocks[:, 16:48, None], axis=2, bitorder="little").transpose(0, 2, 1)
    return _runs_of_32(blocks, _k_nibbles(blocks[:, 48:176]) | (bits.reshape(-1, 4, 2, 32) << np.uint8(4)))


def _q6_k(blocks: Bytes) -> Array:
    """256 numbers of 6 bits: 4 low bits in ``ql``, 2 high bits in ``qh``, a signed scale per 16 numbers."""
    count = len(blocks)
    low = blocks[:, :128].reshape(count, 2, 2, 32)
    high = blocks[:, 128:192].reshape(count, 2, 1, 32)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    # Each half of 128 has four runs of 32: low nibbles of both byte runs, then high nibbles of both.
    four = np.concatenate([low & 15, low >> 4], axis=2)
    two = (high >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    numbers = (four | (two << 4)).astype(np.float32) - 32
    scaled: Array = numbers.reshape(count, 16, 16) * scales[:, :, None]
    scaled.reshape(count, 256)[...] *= _half(blocks, 208)
    return scaled.reshape(count, 256)


#: Supported kinds, by their number in the file.
PACKINGS: dict[int, Packing] = {
    0: Packing("F32", 1, 4, _f32),
    1: Packing("F16", 1, 2, _f16),
    2: Packing("Q4_0", 32, 18, _q4_0),
    3: Packing("Q4_1", 32, 20, _q4_1),
    6: Packing("Q5_0", 32, 22, _q5_0),
    7: Packing("Q5_1", 32, 24, _q5_1),
    8: Packing("Q8_0", 32, 34, _q8_0),
    12: Packing("Q4_K", 256, 144, _q4_k),
    13: Packing("Q5_K", 256, 176, _q5_k),
    14: Packing("Q6_K", 256, 210, _q6_k),
    30: Packing("BF16", 1, 2, _bf16),
}

#: Kinds that aren't read, for messages.
OTHERS: dict[int, str] = {
    10: "Q2_K",
    11: "Q3_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}


def kind_name(kind: int) -> str:
    """The name of a kind."""
    packing = PACKINGS.get(kind)
    return packing.name if packing is not None else OTHERS.get(kind, f"number {kind}")
