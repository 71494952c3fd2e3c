"""An experiment carried out from the command line: what is printed, and the exit code."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import attrs

from evsys_cli.detaching import OUTPUT
from evsys_cli.json_lines import print_done, print_launched
from evsys_cli.output import for_terminal, telling, terminal_width
from evsys_runtime import echo
from evsys_runtime.commands import write_outputs_to

if TYPE_CHECKING:
    from evsys.types import ExperimentResult
    from evsys_record.control import Address
    from evsys_record.experiment_record import ExperimentRecord
    from evsys_runtime.experiment import Experiment

__all__ = ["Printing", "carry_out", "to_go_on"]

INTERRUPTED = 130
UNPRINTED = 1
MOST_RUNS = 5
"""Runs to name when all are interrupted."""


@attrs.frozen(kw_only=True)
class Printing:
    """How the course and the end of an experiment are printed: as lines of JSON or as words, and how much of it.

    `detached` is the process of `--detach`: it leaves the outputs that it got once it has printed the launch line.
    """

    as_json: bool = False
    verbose: bool = False
    full: bool = False
    detached: bool = False


def carry_out(experiment: Experiment, printing: Printing) -> int:
    """Run an experiment and print how it ended; returns the exit code."""
    import asyncio

    if printing.as_json:
        experiment.on_launch = partial(_report_launch, printing)

    from evsys_runtime.experiment.supervision.interrupts import AbandonRequest, TerminationRequest

    try:
        result = experiment.run()
    except AbandonRequest:
        _leave(experiment)
    except (KeyboardInterrupt, asyncio.CancelledError) as exc:
        return _report_interruption(experiment.result, INTERRUPTED, exc, printing)
    except TerminationRequest as exc:
        return _report_interruption(experiment.result, exc.exit_code, exc, printing)
    except Exception:
        if experiment.result is not None:
            with telling():
                echo(f"{experiment.result.status}; record: {experiment.result.directory}", err=True)
        raise
    code = _print_result(result, printing, nothing_to_do=experiment.nothing_to_do)
    if not experiment.nothing_to_do:
        return code
    with telling():
        echo(f"Nothing to do: {result.experiment_id} is complete.", err=True)
    return 0 if code == result.exit_code else code


def _leave(experiment: Experiment) -> NoReturn:
    """End the process immediately, without waiting for its threads."""
    with telling():
        echo("\nStopped immediately.", err=True)
        if experiment.record is not None:
            echo(to_go_on(str(experiment.record.directory)), err=True)
    os._exit(INTERRUPTED)


def to_go_on(experiment: str) -> str:
    """The line on how to resume an experiment, named by its folder or its ID."""
    return f"To resume: evsys resume {shlex.quote(experiment)}"


def _report_launch(printing: Printing, record: ExperimentRecord, address: Address | None) -> None:
    """Print the first line; from there on a detached process writes into the record alone."""
    with telling():
        print_launched(record.directory, address)
    if printing.detached:
        write_outputs_to(record.directory / OUTPUT)


def _report_interruption(
    result: ExperimentResult | None, code: int, cause: BaseException, printing: Printing
) -> int:
    """Print where the results so far are kept."""
    if result is None:
        from evsys_cli.errors import Interrupted

        raise Interrupted("Interrupted before anything was recorded.", code) from cause
    with telling():
        if sys.stderr is not None and sys.stderr.isatty():
            echo(err=True)  # below the live line, which still holds the cursor
        echo(f"Interrupted; {result.status}, record: {result.directory}", err=True)
        if not result.dry:
            for line in (*_where_runs_go_on(result), to_go_on(result.directory)):
                echo(line, err=True)
    if printing.as_json:
        _print_result(result, printing)
    return code


def _where_runs_go_on(result: ExperimentResult) -> Iterator[str]:
    """The training that interrupted runs have kept."""
    cut = [
        arm.run for arm in result.arms if arm.status == "cancelled" and arm.run is not None and arm.run.steps
    ]
    for run in cut[:MOST_RUNS]:
        done = "1 step" if run.steps == 1 else f"{run.steps} steps"
        if run.final_checkpoint is None:
            yield f"{run.run_id} starts over: none of its {done} is in a checkpoint (save_every sets how often one is saved)"
        else:
            yield f"{run.run_id} resumes from step {run.final_checkpoint.rpartition('/')[2]} of the {done} it made"
    if len(cut) > MOST_RUNS:
        yield f"and {len(cut) - MOST_RUNS} more interrupted runs"


def _print_result(result: ExperimentResult, printing: Printing, *, nothing_to_do: bool = False) -> int:
    """Print the result, and return the exit code: what can't be printed is on record all the same."""
    try:
        if printing.as_json:
            print_done(result, full=printing.full, nothing_to_do=nothing_to_do)
        else:
            from evsys_cli.summary import summary_lines

            echo(for_terminal(summary_lines(result, width=terminal_width(), verbose=printing.verbose)))
    except OSError as exc:
        with telling():
            echo(
                f"The result can't be printed ({exc.strerror}); it is on record: {result.directory}", err=True
            )
        # Who closes a pipe has read enough; a full disk lacks what was asked for.
        return result.exit_code if isinstance(exc, BrokenPipeError) else result.exit_code or UNPRINTED
    return result.exit_code
