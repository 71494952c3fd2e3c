"""`evsys resume`: resume an interrupted or otherwise incomplete experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_cli.detaching import detach as start_detached
from evsys_cli.detaching import detach_options, full_option
from evsys_cli.output import telling
from evsys_cli.records import open_index
from evsys_runtime import (
    CountedFromTheEnd,
    echo,
    experiment_names,
    json_option,
    records_folder,
    records_option,
)

if TYPE_CHECKING:
    from evsys_runtime.experiment import Experiment

__all__ = ["given_flags", "of_config", "resume", "telling_of"]


@click.command(cls=CountedFromTheEnd)
@click.argument("experiment", required=False, shell_complete=experiment_names)
@click.option(
    "--fork",
    is_flag=True,
    help="Create a new experiment from its checkpoints, regardless of changes since.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change the budget, watchdog or max_concurrent_arms, or repeat a secret; with --fork, any value.",
)
@click.option("--fail-fast", is_flag=True, help="When one arm fails, cancel the others and skip the rest.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache of results.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no log lines.")
@click.option("-v", "--verbose", is_flag=True, help="List every evaluation of every run at the end.")
@full_option
@detach_options
@records_option
@json_option
def resume(
    experiment: str | None,
    *,
    fork: bool,
    overrides: tuple[str, ...],
    fail_fast: bool,
    no_cache: bool,
    quiet: bool,
    verbose: bool,
    full: bool,
    detach: bool,
    detached: bool,
    records: Path | None,
    as_json: bool,
) -> int:
    """Resume EXPERIMENT (default: the newest incomplete one) after a crash, Ctrl-C or a failure.

    Complete runs are kept. Others resume from their last checkpoint; runs that finished training are only evaluated. Nothing
    that affects the results may have changed since, except with --fork.

    EXPERIMENT is a folder, an ID or unique prefix, a unique name, `last`, or -2 for the second to last.
    The exit codes are those of `evsys run`, and 0 if there is nothing to do.
    """
    if detach:
        return start_detached(as_json=as_json)
    from evsys_runtime.blas_kernel import use_kernel

    directory = _directory(experiment, records)
    use_kernel(directory)  # before anything imports numpy
    from evsys_cli.running import Printing, carry_out
    from evsys_runtime.experiment import Experiment

    flags = given_flags(fail_fast=fail_fast, no_cache=no_cache)
    found = (Experiment.fork if fork else Experiment.resume)(
        directory, overrides=overrides, quiet=quiet, **flags
    )
    printing = Printing(as_json=as_json, verbose=verbose, full=full, detached=detached)
    return carry_out(telling_of(found, quiet=quiet), printing)


def given_flags(**flags: bool) -> dict[str, Any]:
    """The flags given; the others keep the values of the launch."""
    return {name: True for name, given in flags.items() if given}


def telling_of(experiment: Experiment, *, quiet: bool) -> Experiment:
    """Open the experiment and print which one it is."""
    if experiment.forks is not None and not quiet:
        with telling():
            echo(f"Branching off from {experiment.forks.name}", err=True)
    if experiment.resumes is not None and not (quiet or experiment.resumes.complete):
        with telling():
            echo(f"Resuming {experiment.resumes.directory.name}", err=True)
    for line in experiment.plan.warnings:
        if line.startswith("the record names ") and not quiet:
            _warn(line)
    return experiment


def of_config(config: Path, *, overrides: Sequence[str], **options: Any) -> Experiment:
    """The newest run of an experiment file, as it is now and with the same `--set` options, that isn't complete."""
    from evsys_record.hashing import digest_bytes
    from evsys_runtime.blas_kernel import use_kernel
    from evsys_runtime.config.validate import load_experiment
    from evsys_runtime.experiment import Experiment
    from evsys_runtime.experiment.resume.unfinished_experiments import newest_unfinished
    from evsys_runtime.experiment.state.facts import hidden_overrides

    plan = load_experiment(config, overrides=overrides, store=options.get("store"))
    directory = newest_unfinished(
        plan.project_root / plan.experiment.output_dir,
        config_hash=digest_bytes(plan.document.text.encode("utf-8")),
        overrides=overrides,
        tell=_warn,
    )
    use_kernel(directory)  # before anything imports numpy
    return Experiment.resume(directory, overrides=hidden_overrides(overrides), **options)


def _warn(line: str) -> None:
    with telling():
        echo(f"warning: {line}", err=True)


def _directory(experiment: str | None, records: Path | None) -> Path:
    """The folder of the named experiment."""
    from evsys_record.experiment_names import experiment_called, folder_called
    from evsys_runtime.experiment.resume.unfinished_experiments import newest_unfinished

    if experiment is None:
        return newest_unfinished(records_folder(records), tell=_warn)
    place = folder_called(experiment)
    if place is not None:
        return place[0]
    experiments = records_folder(records)
    with open_index(experiments) as index:
        return experiments / experiment_called(experiment, index)
