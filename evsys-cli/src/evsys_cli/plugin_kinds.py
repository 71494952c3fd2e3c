"""The kinds of plugin as arguments of commands."""

from __future__ import annotations

import click

__all__ = ["refuse_unknown_kind"]


def refuse_unknown_kind(kind: str) -> None:
    """Do nothing for a kind of plugin.

    Raises:
        click.UsageError: it is none; with the closest kind, or all of them.
    """
    from difflib import get_close_matches

    from evsys.protocols import KINDS

    if kind not in KINDS:
        close = get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"kinds: {', '.join(KINDS)}"
        raise click.UsageError(f"unknown kind {kind!r}; {hint}")
