"""`evsys run`: the whole life of an experiment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_cli.output import for_terminal, telling, terminal_width
from evsys_runtime.commands import json_option, print_json

if TYPE_CHECKING:
    from evsys.types import ExperimentResult

__all__ = ["run"]

INTERRUPTED = 130
UNPRINTED = 1


@click.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option("--dry", is_flag=True, help="A few steps and a few tasks, every rollout kept; no verdict.")
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the file for this run."
)
@click.option(
    "--fail-fast", is_flag=True, help="At the first arm that fails cancel the others, and skip what is left."
)
@click.option(
    "--skip-grader-check", is_flag=True, help="Don't try the verifiers on answers made without a model."
)
@click.option("--no-cache", is_flag=True, help="Score everything anew, and keep no result for later.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no log lines.")
@click.option("-v", "--verbose", is_flag=True, help="List every scoring of every run at the end.")
@json_option
def run(
    config: Path,
    *,
    dry: bool,
    overrides: tuple[str, ...],
    fail_fast: bool,
    skip_grader_check: bool,
    no_cache: bool,
    quiet: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Run the experiment in CONFIG: validate it, train and score each arm, and conclude.

    The record goes to `.evsys/experiments/` in the project. Exit codes: 0 done (a refuted hypothesis is a result), 1 a
    run or an evaluation failed or the result is invalid, 2 the config is wrong, 3 a plugin is wrong, 4 the data is
    wrong, 5 stopped by the budget, 130 interrupted, 128 and its number for another signal. A run that is interrupted
    keeps what it has, with the status `cancelled`.
    """
    import asyncio

    from evsys_runtime.experiment import Experiment
    from evsys_runtime.experiment.interrupts import Terminated

    experiment = Experiment.from_yaml(
        config,
        overrides=overrides,
        dry=dry,
        fail_fast=fail_fast,
        quiet=quiet,
        skip_grader_check=skip_grader_check,
        no_cache=no_cache,
    )
    try:
        result = experiment.run()
    except (KeyboardInterrupt, asyncio.CancelledError) as exc:
        return _interrupted(experiment.result, INTERRUPTED, exc, as_json=as_json)
    except Terminated as exc:
        return _interrupted(experiment.result, exc.exit_code, exc, as_json=as_json)
    except Exception:
        if experiment.result is not None:
            with telling():
                click.echo(f"{experiment.result.status}; record: {experiment.result.directory}", err=True)
        raise
    return _printed(result, as_json=as_json, verbose=verbose)


def _interrupted(result: ExperimentResult | None, code: int, cause: BaseException, *, as_json: bool) -> int:
    """Say where what was done so far is kept."""
    if result is None:
        from evsys_cli.errors import Interrupted

        raise Interrupted("Interrupted before anything was recorded.", code) from cause
    with telling():
        if sys.stderr is not None and sys.stderr.isatty():
            click.echo(err=True)  # below the live line, in which the cursor still stands
        click.echo(f"Interrupted; {result.status}, record: {result.directory}", err=True)
    if as_json:
        _printed(result, as_json=True)
    return code


def _printed(result: ExperimentResult, *, as_json: bool, verbose: bool = False) -> int:
    """Print the result, and return the exit code: what can't be printed is on record all the same."""
    try:
        if as_json:
            from evsys_runtime.record.result_schemas import result_tree

            print_json(result_tree(result))
        else:
            from evsys_cli.summary import summary_lines

            click.echo(for_terminal(summary_lines(result, width=terminal_width(), verbose=verbose)))
    except OSError as exc:
        with telling():
            click.echo(
                f"The result can't be printed ({exc.strerror}); it is on record: {result.directory}", err=True
            )
        # Who closes a pipe has read enough; a full disk lacks what was asked for.
        return result.exit_code if isinstance(exc, BrokenPipeError) else result.exit_code or UNPRINTED
    return result.exit_code
