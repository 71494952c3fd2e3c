"""The command line in this process."""

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from evsys_cli.main import main


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def evsys(*arguments: str) -> Done:
    """Run a command to its end, with what becomes of its errors."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as exc:
            code = exc.code
    return Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err) if not stream.flush()))
