"""The values of a JSON file, one at a time: the elements of an array, or objects that follow one another."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from evsys_runtime.data.duplicate_keys import refuse_duplicate_keys
from evsys_runtime.data.json_rows import BadRow, bad_json, check_surrogates, scan

__all__ = ["json_values"]

_CHUNK = 1 << 18
_SPACE = " \t\r\n"
_LONGEST_TOKEN = 16
"""A decoding error this near to the end of what was read may be a value that continues."""


def json_values(stream: BinaryIO) -> Iterator[tuple[int, Any]]:
    """`(physical line, value)` of each element, in constant memory (the longest element decides).

    A value that is JSON but can't be a row's text comes as `BadRow`.

    Raises:
        BadRow: the file is not JSON; its `line` says where. The elements after it can't be separated, so nothing is skipped.
    """
    cursor = _Cursor(stream)
    try:
        if cursor.peek() == "\ufeff":
            cursor.take(1)
        if cursor.peek() == "[":
            cursor.take(1)
            yield from _elements(cursor)
        else:
            while cursor.peek():
                yield cursor.value()
    except BadRow as exc:
        raise BadRow(exc.kind, exc.args[0], line=cursor.line) from exc


def _elements(cursor: _Cursor) -> Iterator[tuple[int, Any]]:
    if cursor.peek() == "]":
        cursor.take(1)
    else:
        while True:
            yield cursor.value()
            mark = cursor.peek()
            if mark == "]":
                cursor.take(1)
                break
            if mark != ",":
                raise cursor.unexpected(
                    "a comma or the end of the array" if mark else "the end of the array, `]`"
                )
            cursor.take(1)
    if cursor.peek():
        raise cursor.unexpected("nothing after the array")


class _Cursor:
    """A place in a stream of text of which only a window is in memory."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False
        self.line = 1

    def peek(self) -> str:
        """The next character that isn't white space; empty at the end."""
        while True:
            start = self._at
            text = self._text
            while start < len(text) and text[start] in _SPACE:
                start += 1
            self.take(start - self._at)
            if start < len(text):
                return text[start]
            if not self._fill():
                return ""

    def take(self, count: int) -> None:
        """Continue, counting lines."""
        self.line += self._text.count("\n", self._at, self._at + count)
        self._at += count

    def value(self) -> tuple[int, Any]:
        """The value that begins here, with the line of its first character."""
        self.peek()
        while True:
            try:
                found, end = scan(self._text, self._at)
            except json.JSONDecodeError as exc:
                goes_on = (
                    exc.msg.startswith("Unterminated string") or exc.pos >= len(self._text) - _LONGEST_TOKEN
                )
                if goes_on and self._fill():
                    continue
                self.take(exc.pos - self._at)
                raise bad_json(exc) from exc
            except BadRow:
                raise
            except (ValueError, RecursionError) as exc:
                raise bad_json(exc) from exc
            if end == len(self._text) and not isinstance(found, dict | list | str) and self._fill():
                continue  # a number may continue in the next chunk
            break
        line, source = self.line, self._text[self._at : end]
        self.take(end - self._at)
        try:
            if "\\u" in source:
                check_surrogates(source, found)
            if isinstance(found, dict):
                refuse_duplicate_keys(source.encode("utf-8"), found)
        except BadRow as exc:
            return line, exc
        return line, found

    def unexpected(self, expected: str) -> BadRow:
        """The error about an unexpected character here."""
        near = self._text[self._at : self._at + 20]
        return BadRow(
            "not valid JSON", f"not valid JSON: expected {expected}" + (f", before {near!r}" if near else "")
        )

    def _fill(self) -> bool:
        """Read on; False at the end of the file. A value that doesn't end makes the window grow twofold."""
        if self._ended:
            return False
        kept = self._text[self._at :]
        raw = self._stream.read(max(_CHUNK, len(kept)))
        self._ended = not raw
        try:
            more = self._decoder.decode(raw, final=self._ended)
        except UnicodeDecodeError as exc:
            self.line += (kept + exc.object[: exc.start].decode("utf-8", "replace")).count("\n")
            raise bad_json(exc) from exc
        if self._ended and not more:
            return False
        self._text, self._at = kept + more, 0
        return True
