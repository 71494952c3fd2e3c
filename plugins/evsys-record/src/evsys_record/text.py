"""Text for people: lists of names, texts cut to a length, and nothing that a terminal would obey."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

__all__ = ["cut", "list_names", "status_words", "visible"]

_HIDDEN = re.compile(
    r"\r\n"
    r"|(?P<style>\x1b\[(?:[0-2]|22|3[1-7]|39|9[1-7])(?:;(?:[0-2]|22|3[1-7]|39|9[1-7]))*m)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that a terminal obeys or can't show: control characters but tab and line feed, overrides of the
writing direction, lone surrogates. Colours that leave text readable are ours, and let through.
"""


def list_names(names: Sequence[str], most: int = 5) -> str:
    """`a, b and 3 more`: at most so many by name."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def cut(text: str, most: int) -> str:
    """A text of at most `most` characters, the last two of them dots if something is left out."""
    return text if len(text) <= most else f"{text[: most - 2]}.."


def status_words(status: str, failed: Sequence[str], most: int = 5) -> str:
    """The status of an experiment, with the runs and scorings that failed in a completed one."""
    return f"{status} except {list_names(failed, most)}" if status == "completed" and failed else status


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
