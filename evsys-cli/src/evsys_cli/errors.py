"""Print errors: the problem, its place, the remedy. An unexpected error, a bug of evsys, is shown with its traceback."""

from __future__ import annotations

import errno
import traceback
from typing import IO, TYPE_CHECKING, Any

import click

from evsys.errors import ConfigError, DataError, EvsysError, Problem
from evsys_cli.output import telling
from evsys_runtime import echo, print_json

if TYPE_CHECKING:
    from evsys_record.secrets import Redactor

__all__ = ["Interrupted", "describe", "report"]

UNEXPECTED = 1


class Interrupted(click.ClickException):
    """The command was interrupted before it had a result."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print a line; an interruption is not an error."""
        echo(self.message, file=file, err=True)


def describe(error: BaseException) -> dict[str, Any]:
    """The error as JSON values, for `--json`."""
    problems: tuple[Problem, ...] = ()
    if isinstance(error, ConfigError):
        problems = error.problems
    elif isinstance(error, DataError):
        where = Problem(path="", message=error.message, hint=error.hint, source=error.source, line=error.line)
        problems = (where,)
    return {
        "type": type(error).__name__,
        "message": getattr(error, "message", None) or _words(error),
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


def _is_full_output(error: BaseException) -> bool:
    """True if standard output goes to a full disk: an `OSError` without a file name that is not a `StoreError`."""
    if not isinstance(error, OSError) or isinstance(error, EvsysError):
        return False
    return error.errno in {errno.ENOSPC, errno.EIO} and error.filename is None


def _words(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"A plugin called sys.exit({'' if error.code is None else repr(error.code)}), so nothing was finished."
    return str(error)


def report(error: BaseException, *, as_json: bool, in_lines: bool = False, full: bool = False) -> int:
    """Print `error` and return its exit code.

    Args:
        error: any.
        as_json: also print it as a JSON document.
        in_lines: on a line, of a command that prints several.
        full: a line with everything, however long.
    """
    with telling():
        _print(error, as_json=as_json, in_lines=in_lines, full=full)
    return error.exit_code if isinstance(error, EvsysError) else UNEXPECTED


def _print(error: BaseException, *, as_json: bool, in_lines: bool, full: bool) -> None:
    if _is_full_output(error):
        echo(f"The output can't be written: {error}", err=True)
        return
    if as_json:
        with telling():
            facts = _redactor().tree(describe(error))
            if in_lines:
                from evsys_cli.json_lines import print_failed

                print_failed(facts, full=full)
            else:
                print_json({"error": facts})
    if not isinstance(error, EvsysError):
        echo(_redactor().text("".join(traceback.format_exception(error))), err=True, nl=False)
        if isinstance(error, SystemExit):
            echo(_words(error), err=True)
        else:
            echo("This is a fault in evsys or in a plugin that it couldn't attribute.", err=True)
        return
    if isinstance(error, ConfigError) and len(error.problems) > 1:
        echo(f"{len(error.problems)} problems:", err=True)
    echo(_redactor().text(str(error)), err=True)


def _redactor() -> Redactor:
    """Redacts the secrets of the environment, which the message of a plugin or a service may contain."""
    from evsys_record.secrets import Redactor

    return Redactor.from_environment()
