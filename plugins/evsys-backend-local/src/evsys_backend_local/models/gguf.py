"""Reader of GGUF files: metadata, and tensors dequantised to floating point.

Layout of the file: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, cast

import attrs
import numpy as np

from evsys.errors import DataError
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.models.quantisation import PACKINGS, Packing, kind_name

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


@attrs.frozen(kw_only=True)
class TensorInfo:
    """The place of a tensor; ``shape`` is in NumPy order, rows first."""

    shape: tuple[int, ...]
    kind: int
    offset: int


def is_gguf(path: Path) -> bool:
    """Whether a file begins as a GGUF file does."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


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
                if not sizes:
                    raise IndexError(f"{name} has no sizes")
                kind, offset = self._number("<I"), self._number("<Q")
                self.tensors[name] = TensorInfo(shape=tuple(reversed(sizes)), kind=kind, offset=offset)
        except (struct.error, UnicodeDecodeError, KeyError, IndexError, RecursionError) as error:
            raise DataError(
                f"damaged: the header breaks at byte {self._at} ({error!r})",
                source=str(path),
                hint="fetch it again",
            ) from error
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise DataError(
                f"damaged: general.alignment is {alignment!r}", source=str(path), hint="fetch it again"
            )
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

    @property
    def needed(self) -> int:
        """Bytes that the file must have to hold all tensors whose quantisation is supported."""
        ends = [self._data]
        for info in self.tensors.values():
            kind = PACKINGS.get(info.kind)
            if kind is not None:
                ends.append(sum(self._place(info, kind)))
        return max(ends)

    def _place(self, info: TensorInfo, kind: Packing) -> tuple[int, int]:
        """The start of a tensor in the file, and its size in bytes."""
        count = math.prod(info.shape)
        return self._data + info.offset, count // kind.numbers * kind.size

    def tensor(self, name: str) -> Array:
        """Tensor ``name`` as float32.

        Raises:
            DataError: it isn't there, is cut off, or has a quantisation that isn't supported.
        """
        info = self.tensors.get(name)
        if info is None:
            raise DataError(f"no tensor {name!r}", source=str(self.path))
        kind = PACKINGS.get(info.kind)
        if kind is None:
            known = ", ".join(entry.name for entry in PACKINGS.values())
            raise DataError(
                f"{name} is quantised as {kind_name(info.kind)}, which isn't supported; {known} are",
                source=str(self.path),
                hint="take a file of another quantisation of the same model, such as Q8_0 or Q4_K_M",
            )
        if info.shape[-1] % kind.numbers:
            raise DataError(f"rows of {name} are not a multiple of {kind.numbers}", source=str(self.path))
        start, size = self._place(info, kind)
        if start + size > len(self._map):
            raise DataError(
                f"cut off: {name} ends beyond the file", source=str(self.path), hint="fetch it again"
            )
        raw = np.frombuffer(self._map, np.uint8, size, start).reshape(-1, kind.size)
        return kind.decode(raw).reshape(info.shape)
