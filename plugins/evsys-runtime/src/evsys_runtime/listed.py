"""Names in a sentence: the first of them, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["listed", "status_words"]


def listed(names: Sequence[str], most: int = 5) -> str:
    """`a, b and 3 more`: at most so many by name."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def status_words(status: str, failed: Sequence[str], most: int = 5) -> str:
    """The status of an experiment, with the runs and scorings that failed in one that is completed."""
    return f"{status} except {listed(failed, most)}" if status == "completed" and failed else status
