"""An error on the terminal: what, where, what to do. The traceback of an unexpected one is shown, since it is our fault."""

from __future__ import annotations

import traceback
from typing import Any

import click

from evsys.errors import ConfigError, EvsysError
from evsys_cli.output import print_json

__all__ = ["describe", "report"]

UNEXPECTED = 1


def describe(error: Exception) -> dict[str, Any]:
    """The error as JSON values, for `--json`."""
    problems = error.problems if isinstance(error, ConfigError) else ()
    return {
        "type": type(error).__name__,
        "message": getattr(error, "message", None) or str(error),
        "hint": getattr(error, "hint", None),
        "exit_code": error.exit_code if isinstance(error, EvsysError) else UNEXPECTED,
        "problems": [
            {
                "path": p.path,
                "message": p.message,
                "hint": p.hint,
                "source": p.source,
                "line": p.line,
                "column": p.column,
            }
            for p in problems
        ],
    }


def report(error: Exception, *, as_json: bool) -> int:
    """Print `error` and return the exit code it stands for."""
    if as_json:
        print_json({"error": describe(error)})
    if not isinstance(error, EvsysError):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        click.echo("This is a fault in evsys or in a plugin that it couldn't attribute.", err=True)
        return UNEXPECTED
    if isinstance(error, ConfigError) and len(error.problems) > 1:
        click.echo(f"{len(error.problems)} problems:", err=True)
    click.echo(str(error), err=True)
    return error.exit_code
