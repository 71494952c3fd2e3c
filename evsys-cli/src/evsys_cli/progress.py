"""How far long work is, on standard error: as a live line on a terminal, else now and then in a plain one."""

from __future__ import annotations

import sys
import time

import click

from evsys_cli.output import telling
from evsys_record.text import visible
from evsys_runtime import echo
from evsys_runtime.terminal import takes_colours

__all__ = ["PLAIN_SECONDS", "REDRAW_SECONDS", "Progress"]

REDRAW_SECONDS, PLAIN_SECONDS = 0.2, 10.0
"""Least time between two live lines, and two plain ones."""


class Progress:
    """Work shorter than the minimum time prints nothing."""

    def __init__(self) -> None:
        self._live = sys.stderr is not None and takes_colours(sys.stderr)
        self._told = time.monotonic()
        self._drawn = ""

    def tell(self, text: str) -> None:
        """Print the progress, unless that was done very recently."""
        now = time.monotonic()
        if now - self._told < (REDRAW_SECONDS if self._live else PLAIN_SECONDS):
            return
        self._told = now
        text = visible(text)
        with telling():
            if self._live:
                self._clear()
                self._drawn = text
                click.echo(text, err=True, nl=False)
            else:
                echo(text, err=True)

    def end(self) -> None:
        """Take the live line away."""
        with telling():
            self._clear()

    def _clear(self) -> None:
        if self._drawn:
            click.echo(f"\r{' ' * len(self._drawn)}\r", err=True, nl=False)
            self._drawn = ""
