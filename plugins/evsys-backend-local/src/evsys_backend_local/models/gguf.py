"""Reader of GGUF files: metadata, and tensors dequantised to floating point.

Layout of the file and of the quantised blocks: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and
`ggml-quants.c` of the same repository.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys.errors import DataError
from evsys_backend_local.engine.params import Array

_MAGIC = b"GGUF"
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9

Bytes = NDArray[np.uint8]


def _half(blocks: Bytes, at: int) -> NDArray[np.float32]:
    """float16 at byte ``at`` of every block, as float32 ``[blocks, 1]``."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes, scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """``[blocks, 16]`` bytes to ``[blocks, 32]`` scaled numbers: the low halves come first, then the high halves."""
    out = np.empty((len(packed), 32), np.float32)
    np.multiply(packed & 15, scale, out=out[:, :16])
    np.multiply(packed >> 4, scale, out=out[:, 16:])
    return out


def _f32(blocks: Bytes) -> Array:
    return blocks.view("<f4")


def _f16(blocks: Bytes) -> Array:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Array:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Bytes) -> Array:
    scale = _half(blocks, 0)
    out = _nibbles(blocks[:, 2:18], scale)
    out -= 8 * scale
    return out


def _q4_1(blocks: Bytes) -> Array:
    out = _nibbles(blocks[:, 4:20], _half(blocks, 0))
    out += _half(blocks, 2)
    return out


def _q8_0(blocks: Bytes) -> Array:
    return blocks[:, 2:34].view(np.int8).astype(np.float32) * _half(blocks, 0)


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
    return scaled


@attrs.frozen
class _Kind:
    name: str
    numbers: int
    size: int
    decode: Callable[[Bytes], Array]


_KINDS: dict[int, _Kind] = {
    0: _Kind("F32", 1, 4, _f32),
    1: _Kind("F16", 1, 2, _f16),
    2: _Kind("Q4_0", 32, 18, _q4_0),
    3: _Kind("Q4_1", 32, 20, _q4_1),
    8: _Kind("Q8_0", 32, 34, _q8_0),
    14: _Kind("Q6_K", 256, 210, _q6_k),
    30: _Kind("BF16", 1, 2, _bf16),
}


@attrs.frozen(kw_only=True)
class TensorInfo:
    """Where a tensor lies; ``shape`` is in NumPy order, rows first."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile:
    """Read access to one GGUF file.

    Attributes:
        metadata: values by key; arrays are lists.
        tensors: what is stored, by name.

    Raises:
        DataError: not a GGUF file, an unknown version, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            head = file.read(4)
            if head != _MAGIC:
                raise DataError(f"not a GGUF file: it starts with {head!r}", source=str(path))
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 4
        try:
            version = self._number("<I")
            if version not in (2, 3):
                raise DataError(f"GGUF version {version}; versions 2 and 3 are supported", source=str(path))
            tensor_count, value_count = self._number("<Q"), self._number("<Q")
            self.metadata: dict[str, Any] = {}
            for _ in range(value_count):
                key = self._string()
                self.metadata[key] = self._value(self._number("<I"))
            self.tensors: dict[str, TensorInfo] = {}
            for _ in range(tensor_count):
                name = self._string()
                sizes = [self._number("<Q") for _ in range(self._number("<I"))]
                kind, offset = self._number("<I"), self._number("<Q")
                self.tensors[name] = TensorInfo(shape=tuple(reversed(sizes)), kind=kind, offset=offset)
        except (struct.error, UnicodeDecodeError, KeyError, IndexError) as error:
            raise DataError(
                f"damaged: the header breaks at byte {self._at} ({error!r})",
                source=str(path),
                hint="fetch it again",
            ) from error
        alignment = int(self.metadata.get("general.alignment", 32))
        self._data = -(-self._at // alignment) * alignment

    def _number(self, code: str) -> int:
        (value,) = struct.unpack_from(code, self._map, self._at)
        self._at += struct.calcsize(code)
        return cast("int", value)

    def _string(self) -> str:
        size = self._number("<Q")
        if self._at + size > len(self._map):
            raise IndexError(f"string of {size} bytes")
        self._at += size
        return self._map[self._at - size : self._at].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._number("<I"), self._number("<Q")
            if inner in (_STRING, _ARRAY):
                return [self._value(inner) for _ in range(count)]
            code = _SCALARS[inner]
            size = struct.calcsize(code)
            if self._at + count * size > len(self._map):
                raise IndexError(f"array of {count} entries")
            values = np.frombuffer(self._map, np.dtype(code), count, self._at).tolist()
            self._at += count * size
            return values
        return self._number(_SCALARS[kind])

    def tensor(self, name: str) -> Array:
        """Tensor ``name`` as float32.

        Raises:
            DataError: it isn't there, is cut off, or has a quantisation that isn't supported.
        """
        info = self.tensors.get(name)
        if info is None:
            raise DataError(f"no tensor {name!r}", source=str(self.path))
        kind = _KINDS.get(info.kind)
        if kind is None:
            known = ", ".join(entry.name for entry in _KINDS.values())
            raise DataError(f"{name} has GGUF type {info.kind}; supported are {known}", source=str(self.path))
        count = int(np.prod(info.shape, dtype=np.int64))
        if info.shape[-1] % kind.numbers:
            raise DataError(f"rows of {name} are no multiple of {kind.numbers}", source=str(self.path))
        size = count // kind.numbers * kind.size
        start = self._data + info.offset
        if start + size > len(self._map):
            raise DataError(
                f"cut off: {name} ends beyond the file", source=str(self.path), hint="fetch it again"
            )
        raw = np.frombuffer(self._map, np.uint8, size, start).reshape(-1, kind.size)
        return kind.decode(raw).reshape(info.shape)
