"""`evsys run`: the whole life of an experiment."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_cli.detaching import detach as start_detached
from evsys_cli.detaching import detach_options, full_option
from evsys_runtime import json_option

__all__ = ["run"]


@click.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option("--resume", is_flag=True, help="Resume the newest incomplete run of this file.")
@click.option(
    "--dry", is_flag=True, help="Run a few steps on a few tasks and keep every rollout; without a verdict."
)
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a value of the file.")
@click.option("--fail-fast", is_flag=True, help="When one arm fails, cancel the others and skip the rest.")
@click.option(
    "--skip-grader-check", is_flag=True, help="Skip the test of the verifiers on generated answers."
)
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache of results.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no log lines.")
@click.option("-v", "--verbose", is_flag=True, help="List every evaluation of every run at the end.")
@full_option
@detach_options
@json_option
def run(
    config: Path,
    *,
    resume: bool,
    dry: bool,
    overrides: tuple[str, ...],
    fail_fast: bool,
    skip_grader_check: bool,
    no_cache: bool,
    quiet: bool,
    verbose: bool,
    full: bool,
    detach: bool,
    detached: bool,
    as_json: bool,
) -> int:
    """Run the experiment in CONFIG: validate it, train and evaluate each arm, and conclude.

    The record goes to `.evsys/experiments/` in the project. Exit codes: 0 done (a refuted hypothesis is a result), 1 a
    run or an evaluation failed or the result is invalid, 2 the config is wrong, 3 a plugin is wrong, 4 the data is
    wrong, 5 stopped by the budget, 130 interrupted, 128 + N ended by signal N. An interrupted run
    keeps its results so far, with the status `cancelled`; `evsys resume` continues it.
    """
    if resume and dry:
        raise click.UsageError("a dry run can't be resumed")
    if detach:
        return start_detached(as_json=as_json)
    from evsys_runtime.blas_kernel import use_kernel

    if not resume:
        use_kernel()  # before anything imports numpy
    from evsys_cli.running import Printing, carry_out
    from evsys_runtime.experiment import Experiment

    if resume:
        from evsys_cli.commands.resume import given_flags, of_config, telling_of

        flags = given_flags(fail_fast=fail_fast, skip_grader_check=skip_grader_check, no_cache=no_cache)
        experiment = telling_of(of_config(config, overrides=overrides, quiet=quiet, **flags), quiet=quiet)
    else:
        experiment = Experiment.from_yaml(
            config,
            overrides=overrides,
            dry=dry,
            fail_fast=fail_fast,
            quiet=quiet,
            skip_grader_check=skip_grader_check,
            no_cache=no_cache,
        )
    return carry_out(experiment, Printing(as_json=as_json, verbose=verbose, full=full, detached=detached))
