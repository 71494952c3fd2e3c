"""The way to a terminal: text from anywhere becomes characters that only show, never commands to the terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import IO, Any, TextIO

__all__ = ["echo", "takes_colours", "visible"]

_HIDDEN = re.compile(
    r"\r\n"
    r"|(?P<style>\x1b\[(?:[0-2]|22|3[1-7]|39|9[1-7])(?:;(?:[0-2]|22|3[1-7]|39|9[1-7]))*m)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What a terminal obeys or can't show: control characters but tab and line feed, overrides of the writing direction, lone
surrogates. Colours that leave text readable are ours, and let through.
"""


def _escaped(character: str) -> str:
    return ascii(character)[1:-1]


def visible(text: str, *, styles: bool = False, escape: Callable[[str], str] = _escaped) -> str:
    r"""`text` with what a terminal would obey as its escape (`\x1b`), so that rows, answers, and services can't write there.

    Line feeds and tabs stay, a carriage return before a line feed goes.

    Args:
        text: any text.
        styles: let colours and boldness through; for text whose parts have been made visible before.
        escape: what is shown for one character.
    """

    def shown(found: re.Match[str]) -> str:
        if found[0] == "\r\n":
            return "\n"
        if found["style"]:
            return found[0] if styles else escape("\x1b") + found[0][1:]
        return escape(found[0])

    return text if text.isprintable() else _HIDDEN.sub(shown, text)


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
