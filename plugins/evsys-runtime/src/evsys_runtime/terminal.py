"""The way to a terminal: text from anywhere becomes characters that only show, never commands to the terminal."""

from __future__ import annotations

import os
from typing import IO, Any, TextIO

from evsys_record.text import visible

__all__ = ["echo", "takes_colours"]


def echo(text: object = "", *, err: bool = False, nl: bool = True, file: IO[Any] | None = None) -> None:
    """Print words for people; every command prints by this.

    Args:
        text: what to print; what a terminal would obey is shown as its escape.
        err: to standard error.
        nl: end with a line feed.
        file: another stream.
    """
    import click

    click.echo(visible(str(text), styles=True), err=err, nl=nl, file=file)


def takes_colours(stream: TextIO) -> bool:
    """True for a terminal that knows colours, unless its user wants none: NO_COLOR is set to anything but nothing."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return not stream.closed and stream.isatty()
