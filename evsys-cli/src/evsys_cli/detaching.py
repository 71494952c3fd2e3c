"""`--detach`: an experiment in a session of its own, which outlives the terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click

from evsys_runtime import echo
from evsys_runtime.commands import print_json_line

__all__ = ["OUTPUT", "detach", "detach_options", "full_option"]

OUTPUT = "output.log"
"""The file of the record with the output of a detached process."""

_OWN = ("detach", "detached", "as_json", "quiet", "verbose", "full")
"""Options that the detached process has otherwise."""


def detach_options[F: Any](function: F) -> F:
    """Give a command the options `--detach`, and `--detached` of the process that this starts."""
    for option in (
        click.option("--detached", is_flag=True, hidden=True),
        click.option(
            "--detach", is_flag=True, help="Run in the background, and return once the experiment has begun."
        ),
    ):
        function = option(function)
    return function


full_option = click.option(
    "--full", is_flag=True, help="With --json, print the full result on the last line instead of a summary."
)
"""Gives a command the option `--full`, and its function the argument `full`."""


def detach(*, as_json: bool) -> int:
    """Start the current command again in a session of its own, and wait until its experiment has begun.

    Prints the experiment's ID, or the launch line if `as_json`. Returns 0, or the exit code of a process that ended
    before; its messages go to standard error.
    """
    ctx = click.get_current_context()
    words = [str(ctx.command.name), *_words(ctx), "--json", "--quiet", "--detached"]
    process = subprocess.Popen(
        [sys.executable, "-m", "evsys_cli.main", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    launched = json.loads(line) if line.endswith("\n") else {}
    if launched.get("event") != "launch":
        if as_json and launched:
            print_json_line(launched)
        elif launched.get("nothing_to_do"):
            echo(f"Nothing to do: {launched['experiment_id']} is complete.", err=True)
        return process.wait()
    process.stdout.close()
    process.returncode = 0  # it runs on: nothing here waits for it, and no warning says so
    if as_json:
        print_json_line(launched)
    else:
        echo(launched["experiment_id"])
    return 0


def _words(ctx: click.Context) -> Iterator[str]:
    """The arguments of the current command, as they would be written."""
    for parameter in ctx.command.params:
        value = ctx.params.get(str(parameter.name))
        if parameter.name in _OWN or value in (None, False, ()):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(parameter, click.Option):
                yield parameter.opts[0]
            if each is not True:
                yield str(each)
