"""Chunks of a file of rows, as they travel and are kept."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from evsys.errors import ConfigError
from evsys_dashboard.data.shapes import CHUNK

__all__ = ["LONGEST_ROW", "chunk_bytes", "lines_of", "pack_chunk", "unpack_chunk"]

LONGEST_ROW = 16 << 20
"""Bytes of a row."""


def pack_chunk(data: bytes) -> bytes:
    """A chunk as it travels, and is kept."""
    return zlib.compress(data, 3)


def unpack_chunk(packed: bytes, size: int) -> bytes:
    """The bytes of a chunk.

    Raises:
        ConfigError: it isn't a zlib stream of exactly so many bytes; no more than these are ever decompressed.
    """
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, size + 1)
    except zlib.error as exc:
        raise ConfigError(f"the chunk isn't compressed with zlib: {exc}") from exc
    if len(data) != size or not unpacking.eof or unpacking.unused_data:
        raise ConfigError(f"the chunk doesn't unpack to its {size} bytes")
    return data


def chunk_bytes(size: int, number: int) -> int:
    """How many bytes a chunk of so many bytes has.

    Raises:
        ConfigError: there is no chunk of this number.
    """
    if not 0 <= number * CHUNK < size:
        raise ConfigError(f"there is no chunk {number} of {size} bytes")
    return min(CHUNK, size - number * CHUNK)


def lines_of(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a file that comes in parts, each without its end.

    Raises:
        ConfigError: a line is longer than `LONGEST_ROW`, or the last one has no end.
    """
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
        if len(rest) > LONGEST_ROW:
            raise ConfigError(f"a row has more than {LONGEST_ROW} bytes")
    if rest:
        raise ConfigError("the last row has no line end")
