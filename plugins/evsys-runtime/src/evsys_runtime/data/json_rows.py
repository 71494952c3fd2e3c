"""Strict JSON to row and back: UTF-8, RFC 8259 (no NaN, no Infinity), one compact line a row."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from evsys.errors import DataError
from evsys_runtime.data.fast_json import accelerator, written_alike

__all__ = ["BadRow", "canonical", "decode_row", "encode_row", "is_row", "row_type_name"]

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class BadRow(ValueError):  # noqa: N818 - control flow between a reader and its policy, not a reported error
    """A line or element that is not a row. `kind` groups such rows in counts, the message describes this one."""

    def __init__(self, kind: str, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.line = line


def _refuse_constant(name: str) -> NoReturn:
    raise BadRow("not valid JSON", f"{name} is not JSON; write null or a string")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadRow("not valid JSON", f"a number has no finite value: {digits[:40]}; write it as a string")
    return number


scan = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).raw_decode
"""`(text, start) -> (value, end)`. `decode` would match white space twice a call, which costs a microsecond a row."""


def _plain(value: Any) -> Any:
    """Values that represent JSON ones: other mappings, and numpy scalars, recognised without importing numpy."""
    if isinstance(value, Mapping):
        return dict(value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError(f"a {type(value).__name__}")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain).encode


_encode_sorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def decode_row(raw: bytes) -> dict[str, Any]:
    """The object on one line; `raw` has no white space around it.

    Raises:
        BadRow: the line is not UTF-8, not JSON, not an object, or holds half a surrogate pair or a number beyond float64.
    """
    if accelerator.decode is None:
        accelerator.row_went_by()
    else:
        try:
            row = accelerator.decode(raw)
        except Exception:  # noqa: S110 - the standard library decides below, and words the error
            pass
        else:
            if type(row) is dict:
                return row
    try:
        text = raw.decode("utf-8")
        row, end = scan(text, 0)
    except BadRow:
        raise
    except (ValueError, RecursionError) as exc:
        if raw.startswith(codecs.BOM_UTF8):  # files glued together carry such marks inside
            return decode_row(raw.removeprefix(codecs.BOM_UTF8).lstrip())
        raise bad_json(exc) from exc
    if end != len(text):
        raise BadRow("not valid JSON", _located_message(text, end, "expected the end of the line"))
    if type(row) is not dict:
        raise not_an_object(row)
    if b"\\u" in raw:
        check_surrogates(text, row)
    return row


def bad_json(exc: Exception) -> BadRow:
    """The error of decoding, in one line."""
    if isinstance(exc, UnicodeDecodeError):
        byte = exc.object[exc.start]
        return BadRow(
            "not UTF-8", f"not UTF-8 (byte 0x{byte:02x} at position {exc.start}); save the file as UTF-8"
        )
    if isinstance(exc, json.JSONDecodeError):
        message = exc.msg[:1].lower() + exc.msg[1:].removesuffix(
            " at"
        )  # the library expects a position behind it
        return BadRow("not valid JSON", _located_message(exc.doc, exc.pos, message))
    if isinstance(exc, RecursionError):
        return BadRow("not valid JSON", "nested too deeply")
    if "integer string conversion" in str(exc):
        return BadRow("not valid JSON", "a number has thousands of digits; write it as a string")
    return BadRow("not valid JSON", str(exc))


def _located_message(text: str, position: int, message: str) -> str:
    near = text[position : position + 20]
    where = f"column {position - text.rfind('\n', 0, position)}"
    return f"not valid JSON: {message} at {where}" + (
        f", before {near!r}" if near else ", where the text ends"
    )


def not_an_object(value: Any) -> BadRow:
    """The complaint about a value that is JSON but no row."""
    return BadRow("not an object", f"a row must be an object of columns, got {row_type_name(value)}")


def row_type_name(value: Any) -> str:
    """The type of a JSON value in messages."""
    names = {
        list: "a list",
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number",
        dict: "an object",
    }
    return "null" if value is None else names.get(type(value), f"a {type(value).__name__}")


def check_surrogates(text: str, row: Any) -> None:
    r"""Refuse half a surrogate pair (`"\ud83d"`): JSON can spell it, but no UTF-8 file or tokenizer can hold it."""
    if _SURROGATE_ESCAPE.search(text):
        try:
            _encode(row).encode("utf-8")
        except UnicodeEncodeError:
            raise BadRow(
                "not valid text", "a string holds half a surrogate pair, which is not a character"
            ) from None


def is_row(value: Any) -> bool:
    """True for mappings; a plain dict is answered without asking the abstract class."""
    return type(value) is dict or isinstance(value, Mapping)


def encode_row(row: Mapping[str, Any], *, what: str = "row") -> bytes:
    r"""The row as one compact JSON line, UTF-8, with its `\n`; columns keep their order.

    Raises:
        DataError: a value that JSON can't hold, named by column. `what` names the row.
    """
    try:
        if accelerator.encode is None:
            accelerator.row_went_by()
        elif written_alike(row):
            return accelerator.encode(row) + b"\n"
        return _encode(row).encode("utf-8") + b"\n"
    except (TypeError, ValueError, RecursionError) as exc:
        raise DataError(
            _unencodable(row, what, exc), hint="turn it into text or a number with a transform"
        ) from exc


def canonical(row: Mapping[str, Any]) -> bytes:
    """The row's bytes for hashing: like `encode_row`, with sorted columns.

    Raises:
        DataError: a value that JSON can't hold.
    """
    return _encode_sorted(json.loads(encode_row(row))).encode("utf-8") + b"\n"


def _unencodable(row: Mapping[str, Any], what: str, cause: Exception) -> str:
    for column, value in row.items():
        try:
            _encode(value).encode("utf-8")
        except UnicodeEncodeError:
            return f"{what}: column {column!r} holds half a surrogate pair, which is not a character"
        except (TypeError, ValueError, RecursionError) as exc:
            return f"{what}: column {column!r} holds what JSON can't: {exc}"
    return f"{what}: {cause}"
