"""Protocol buffers by field number: what a handful of messages needs, in both directions.

The encoding is described at https://protobuf.dev/programming-guides/encoding/. A message is a row of fields, each a
number with a kind, then its content; unknown numbers are skipped, so newer clients may send more than we read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

__all__ = [
    "WireError",
    "boolean",
    "content",
    "double",
    "doubles",
    "entries",
    "entry",
    "fields",
    "integer",
    "integers",
    "length_delimited",
    "number",
    "repeated_field",
    "string",
    "text",
    "to_signed",
]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_DOUBLE = struct.Struct("<d")


class WireError(ValueError):
    """Bytes that aren't the message they should be."""


def fields(message: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message in their order: a number, and an integer or the bytes of the content.

    Raises:
        WireError: the bytes are not a message, or end within a field.
    """
    view, place, end = memoryview(message), 0, len(message)
    while place < end:
        key, place = view[place], place + 1
        if key > 0x7F:  # seldom, as below: most numbers have one byte
            key, place = _varint(view, place - 1)
        kind, found = key & 7, key >> 3
        if kind == _VARINT:
            value, place = _varint(view, place)
            yield found, value
            continue
        if kind == _LENGTH:
            if place < end and (size := view[place]) < 0x80:
                place += 1
            else:
                size, place = _varint(view, place)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"field {found} has the unknown kind {kind}")
        if place + size > end:
            raise WireError(f"field {found} has {size} bytes, and the message ends after {end - place}")
        yield found, view[place : place + size]
        place += size


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    if place < len(view) and (value := view[place]) < 0x80:  # most have one byte
        return value, place + 1
    value = shift = 0
    for byte in view[place : place + _MOST_VARINT_BYTES]:
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7
    raise WireError("the message ends within a number")


def to_signed(value: int | memoryview) -> int:
    """An integer field as the signed number of 64 bits that it is."""
    if not isinstance(value, int):
        raise WireError("a number was expected")
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def content(value: int | memoryview) -> memoryview:
    """The bytes of a field that has some."""
    if isinstance(value, int):
        raise WireError("bytes were expected, not a number")
    return value


def string(value: int | memoryview) -> str:
    """A text field."""
    try:
        return bytes(content(value)).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise WireError(f"a string isn't UTF-8: {exc}") from exc


def double(value: int | memoryview) -> float:
    """A floating-point field of 64 bits."""
    view = content(value)
    if len(view) != _DOUBLE.size:
        raise WireError(f"a number has {len(view)} bytes, expected 8")
    return float(_DOUBLE.unpack(view)[0])


def repeated_field(value: int | memoryview) -> list[int]:
    """One occurrence of a repeated integer field: a single number, or many in a row ("packed")."""
    if isinstance(value, int):
        return [to_signed(value)]
    found, place = [], 0
    while place < len(value):
        entry, place = _varint(value, place)
        found.append(to_signed(entry))
    return found


def entry(value: int | memoryview) -> tuple[str, int | memoryview | None]:
    """An entry of a map with texts as keys: the key, and the field of the value; None where it is left out."""
    key, found = "", None
    for number_, part in fields(content(value)):
        if number_ == 1:
            key = string(part)
        elif number_ == 2:
            found = part
    return key, found


# --- writing ----------------------------------------------------------------------------------------------------


def _encoded(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def length_delimited(field: int, data: bytes | memoryview) -> bytes:
    """A field with bytes, a message among them."""
    return b"".join((_encoded(field << 3 | _LENGTH), _encoded(len(data)), data))


def text(field: int, value: str) -> bytes:
    """A text field."""
    return length_delimited(field, value.encode("utf-8"))


def integer(field: int, value: int) -> bytes:
    """An integer field, enumerations among them; 0 is what is left out."""
    return _encoded(field << 3) + _encoded(value) if value else b""


def boolean(field: int, value: bool) -> bytes:
    """A true field, or left out."""
    return integer(field, int(value))


def integers(field: int, values: tuple[int, ...]) -> bytes:
    """A repeated integer field, packed; left out where there are none."""
    return length_delimited(field, b"".join(map(_encoded, values))) if values else b""


def number(field: int, value: float) -> bytes:
    """A floating-point field of 64 bits."""
    return _encoded(field << 3 | _FIXED64) + _DOUBLE.pack(value)


def entries(field: int, values: Mapping[str, bytes]) -> bytes:
    """A map field from texts to what was encoded as field 2."""
    return b"".join(length_delimited(field, text(1, key) + value) for key, value in values.items())


def doubles(field: int, values: Mapping[str, float]) -> bytes:
    """A map field from texts to floating-point numbers."""
    return entries(field, {key: number(2, value) for key, value in values.items()})
