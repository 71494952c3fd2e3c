"""Safetensors files: an 8-byte length, a JSON header, raw little-endian arrays.

The format is described in the documentation of the `safetensors` library.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from evsys.errors import DataError
from evsys_backend_local.engine.arrays import Array

#: Element types of the format that NumPy has. BF16 is widened to float32 on reading.
_TYPES: dict[str, str] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}

#: The format's own bound on the header.
_MAX_HEADER = 100_000_000


class SafetensorsFile:
    """Read access to one file; arrays are views of the mapped file where the type allows it.

    Raises:
        DataError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8:
                raise DataError(f"not a safetensors file: only {size} bytes", source=str(path))
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        length = int.from_bytes(self._map[:8], "little")
        if length > min(_MAX_HEADER, size - 8):
            raise DataError(
                f"damaged: the header claims {length} bytes of a file of {size}", source=str(path)
            )
        try:
            header = json.loads(self._map[8 : 8 + length])
            if not isinstance(header, dict):
                raise ValueError("it is not an object")  # noqa: TRY004 - damage, like broken JSON
        except (ValueError, RecursionError) as error:
            raise DataError(f"damaged: the header is not JSON ({error})", source=str(path)) from error
        metadata = header.pop("__metadata__", None) or {}
        self._header: dict[str, Any] = header
        self._start = 8 + length
        self._require_sense(metadata)
        self.metadata: dict[str, str] = metadata
        needed = self._start + max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if needed > size:
            raise DataError(
                f"damaged: it has {size} bytes and its arrays need {needed}",
                source=str(path),
                hint="copy or download it again",
            )

    def _require_sense(self, metadata: Any) -> None:
        """Raise for entries that aren't as the format says, so that nothing else has to look again."""
        wrong = [name for name, entry in self._header.items() if not _is_entry(entry)]
        if not isinstance(metadata, dict):
            wrong.append("__metadata__")
        if wrong:
            raise DataError(
                f"damaged: the header's entry of {wrong[0]} makes no sense",
                source=str(self.path),
                hint="copy or download it again",
            )
        places = sorted((*entry["data_offsets"], name) for name, entry in self._header.items())
        for (_, end, name), (begin, _, other) in pairwise(places):
            if begin < end:
                raise DataError(
                    f"damaged: {name} and {other} lie in the same place",
                    source=str(self.path),
                    hint="copy or download it again",
                )

    def __iter__(self) -> Iterator[str]:
        return iter(self._header)

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def kind(self, name: str) -> str:
        """Element type of array ``name``, as the format calls it."""
        return str(self._header[name]["dtype"])

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of array ``name``, from the header."""
        return tuple(self._header[name]["shape"])

    def __getitem__(self, name: str) -> Array:
        """Array ``name``; BF16 comes back as float32."""
        entry = self._header[name]
        kind, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        code = "<u2" if kind == "BF16" else _TYPES.get(kind)
        if code is None:
            raise DataError(f"{name} has the type {kind}, which is not supported", source=str(self.path))
        count = math.prod(shape)
        if end - begin != count * np.dtype(code).itemsize:
            raise DataError(f"damaged: {name} does not fit into the file", source=str(self.path))
        raw = np.frombuffer(self._map, code, count, self._start + begin)
        if kind == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        return raw.reshape(shape)


def _is_entry(entry: Any) -> bool:
    """Whether the header says of an array what it must: its type, its sizes, and where it begins and ends."""
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not (_are_counts(shape) and _are_counts(offsets)):
        return False
    return len(offsets) == 2 and offsets[0] <= offsets[1]


def _are_counts(values: Any) -> TypeGuard[Sequence[int]]:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def write_safetensors(
    path: Path,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str] | None = None,
    *,
    kind: str | None = None,
) -> None:
    """Write arrays in the given order; the file appears whole or not at all.

    Args:
        path: the file.
        arrays: what goes in.
        metadata: texts alongside them.
        kind: element type to convert to, `F32`, `F16` or `BF16`; None keeps each array's own.

    Raises:
        ValueError: a type that the format lacks, or a number that ``kind`` can't hold.
    """
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = dict(metadata)
    offset = 0
    for name, array in arrays.items():
        own = kind or _NAMES.get(array.dtype.newbyteorder("<"))
        if own is None:
            raise ValueError(f"array {name} has type {array.dtype}, which safetensors has no name for")
        size = array.size * (2 if own == "BF16" else np.dtype(_TYPES[own]).itemsize)
        header[name] = {"dtype": own, "shape": list(array.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(len(text).to_bytes(8, "little"))
            file.write(text)
            for name, array in arrays.items():
                file.write(_converted(name, array, kind).data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _converted(name: str, array: Array, kind: str | None) -> Array:
    """Contiguous little-endian elements of the type ``kind``."""
    if kind is None:
        return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    if kind == "BF16":
        return bfloat16(array)
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, _TYPES[kind])
    if not np.isfinite(converted).all():
        raise ValueError(f"array {name} holds numbers that {kind} can't")
    return converted


def bfloat16(array: Array) -> NDArray[np.uint16]:
    """The upper halves of float32 numbers, rounded to the nearest, ties to even; all must be finite."""
    bits = np.ascontiguousarray(array, "<f4").view("<u4")
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype("<u2")
