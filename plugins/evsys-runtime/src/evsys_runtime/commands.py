"""For authors of commands: standard output is either words for people, or exactly one JSON document.

A command is a click object behind an entry point of the group `evsys.commands`. It is loaded by the command line only,
which brings click.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO, cast

import click

from evsys_record.text import visible

__all__ = [
    "column_lines",
    "compact_json",
    "json_option",
    "json_or_text",
    "json_text",
    "named_texts",
    "print_json",
    "print_json_line",
    "speaks_utf8",
    "write_outputs_to",
]

FORMAT = 1

_STDOUT = "evsys_runtime.commands.stdout"
_OUTPUT, _ERRORS = 1, 2
_GAP = "  "


def _keep_for_the_document(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    """With `--json`, what plugins print goes to standard error, so that standard output has only the document."""
    if value:
        ctx.meta[_STDOUT] = ctx.with_resource(_own_descriptor(sys.stdout))
        ctx.with_resource(redirect_stdout(sys.stderr))
    return value


@contextmanager
def _own_descriptor(stream: TextIO | None) -> Iterator[TextIO | None]:
    """Standard output under another descriptor, while descriptor 1 is standard error for child processes and C code.

    A stream put in the place of standard output, as a test does it, stays as it is.
    """
    try:
        kept = _duplicate() if stream is not None and stream.fileno() == _OUTPUT else None
    except (OSError, ValueError):  # it has no descriptor, or a closed one
        kept = None
    if stream is None or kept is None:
        yield stream
        return
    stream.flush()
    own = os.fdopen(kept, "w", encoding=stream.encoding, errors=stream.errors)
    try:
        with suppress(OSError):  # standard error is closed
            os.dup2(_ERRORS, _OUTPUT)
        yield own
    finally:
        with suppress(OSError):
            own.flush()
        os.dup2(kept, _OUTPUT)
        with suppress(OSError):  # a full disk, or a reader who has gone; the command knows
            own.close()


def _duplicate() -> int:
    """Another descriptor of standard output, above those of the standard streams."""
    try:
        import fcntl
    except ImportError:  # Windows
        return os.dup(_OUTPUT)
    return fcntl.fcntl(_OUTPUT, fcntl.F_DUPFD_CLOEXEC, _ERRORS + 1)


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    is_eager=True,
    callback=_keep_for_the_document,
    help="Print one JSON document on standard output.",
)
"""Gives a command the option `--json`, and its function the argument `as_json`."""


def print_json(document: Mapping[str, Any], *, compact: bool = False) -> None:
    """Print the one document of a command; logs and progress go to standard error, so nothing else is there.

    Args:
        document: what is printed, below its `format`.
        compact: on one line without spaces, for readers who pay by the word.
    """
    stream = _document_stream()
    if stream is None:
        return
    text = compact_json(document, stream) if compact else json_text({"format": FORMAT, **document}, stream)
    click.echo(text, file=stream)


def print_json_line(document: Mapping[str, Any]) -> None:
    """Print a document on one line at once, for commands that print one after another."""
    stream = _document_stream()
    if stream is not None:
        escaped = not speaks_utf8(stream)
        text = json.dumps(document, ensure_ascii=escaped, separators=(",", ":"), allow_nan=False)
        click.echo(_visible(text), file=stream)


def write_outputs_to(path: Path) -> None:
    """Continue all output of this process in a file, whatever its descriptors were; appends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        for stream in {
            id(stream): stream for stream in (_document_stream(), sys.stdout, sys.stderr)
        }.values():
            if stream is not None:
                stream.flush()
                os.dup2(descriptor, stream.fileno())
        for standard in (_OUTPUT, _ERRORS):
            os.dup2(descriptor, standard)
    finally:
        os.close(descriptor)


def _document_stream() -> TextIO | None:
    """Where documents go; None if the process was started without standard output."""
    ctx = click.get_current_context(silent=True)
    return cast("TextIO | None", (ctx.meta if ctx else {}).get(_STDOUT, sys.stdout))


def json_text(document: Mapping[str, Any], stream: TextIO) -> str:
    """A document for a stream; what its encoding may lack is escaped as JSON does it."""
    escaped = not speaks_utf8(stream)
    return _visible(json.dumps(document, ensure_ascii=escaped, indent=2, allow_nan=False))


def compact_json(document: Mapping[str, Any], stream: TextIO | None = None) -> str:
    """The same on one line, without spaces; for no stream nothing is escaped."""
    escaped = stream is not None and not speaks_utf8(stream)
    return _visible(
        json.dumps(
            {"format": FORMAT, **document}, ensure_ascii=escaped, separators=(",", ":"), allow_nan=False
        )
    )


def _visible(text: str) -> str:
    """JSON in which no character is left that a terminal obeys; it reads back as the same values."""
    return visible(text, escape=lambda character: f"\\u{ord(character):04x}")


def speaks_utf8(stream: TextIO) -> bool:
    """True for a stream that takes every character."""
    return (stream.encoding or "utf-8").lower().replace("-", "").replace("_", "") == "utf8"


def json_or_text(text: str) -> Any:
    """A value as JSON has it, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def named_texts(texts: Iterable[str], *, option: str = "--param") -> list[tuple[str, str]]:
    """Names and values of an option given as `NAME=VALUE`, maybe several times.

    Raises:
        click.BadParameter: one has no name, or no sign.
    """
    found = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise click.BadParameter(f"{text!r} isn't NAME=VALUE", param_hint=option)
        found.append((name, value))
    return found


def column_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows under a header, in columns as wide as they need to be; nothing is cut, so that lines can be searched."""
    table = [[name.upper() for name in header], *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
