"""Names and texts in a sentence: the first names and how many more there are, and texts cut to a length."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["cut", "listed", "status_words"]


def listed(names: Sequence[str], most: int = 5) -> str:
    """`a, b and 3 more`: at most so many by name."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def cut(text: str, most: int) -> str:
    """A text of at most `most` characters, the last two of them dots if something is left out."""
    return text if len(text) <= most else f"{text[: most - 2]}.."


def status_words(status: str, failed: Sequence[str], most: int = 5) -> str:
    """The status of an experiment, with the runs and scorings that failed in one that is completed."""
    return f"{status} except {listed(failed, most)}" if status == "completed" and failed else status
