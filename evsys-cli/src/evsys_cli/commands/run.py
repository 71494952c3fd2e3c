"""`evsys run`: the whole life of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_cli.output import json_option, print_json

if TYPE_CHECKING:
    from evsys.types import ExperimentResult

__all__ = ["run"]


@click.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option("--dry", is_flag=True, help="A few steps and a few tasks, every rollout kept; no verdict.")
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the file for this run."
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first arm that fails.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no log lines.")
@json_option
def run(
    config: Path, *, dry: bool, overrides: tuple[str, ...], fail_fast: bool, quiet: bool, as_json: bool
) -> int:
    """Run the experiment in CONFIG: validate it, train and score each arm, and conclude.

    The record goes to `.evsys/experiments/` in the project. Exit codes: 0 done (a refuted hypothesis is a result), 1 a
    run or an evaluation failed or the result is invalid, 2 the config is wrong, 3 a plugin is wrong, 4 the data is
    wrong, 5 stopped by the budget, 130 interrupted.
    """
    import asyncio

    from evsys_runtime.experiment import Experiment

    experiment = Experiment.from_yaml(config, overrides=overrides, dry=dry, fail_fast=fail_fast, quiet=quiet)
    try:
        result = experiment.run()
    except asyncio.CancelledError as exc:
        raise click.Abort from exc
    if as_json:
        from evsys_runtime.record.result_schemas import result_tree

        print_json(result_tree(result))
    else:
        _print_summary(result)
    return result.exit_code


def _print_summary(result: ExperimentResult) -> None:
    from evsys_runtime.experiment.verdict.prose import comparison_sentence, evaluation_line, verdict_line

    conclusion = result.conclusion
    click.echo()
    for comparison in conclusion.comparisons:
        if comparison.effect is not None:
            click.echo(comparison_sentence(conclusion, comparison))
    for arm in result.arms:
        for evaluation in arm.evaluations:
            click.echo(f"  {arm.run_id:<24} {evaluation_line(evaluation)}")
        if arm.failure is not None:
            place = f" ({arm.failure.place})" if arm.failure.place else ""
            click.echo(f"  {arm.run_id:<24} {arm.status}: {arm.failure.message}{place}")
            if arm.failure.hint:
                click.echo(f"  {'':<24} {arm.failure.hint}")
        elif arm.status != "completed":
            click.echo(
                f"  {arm.run_id:<24} {arm.status}: {(arm.run and arm.run.stop_reason) or 'no reason given'}"
            )
    for warning in dict.fromkeys((*conclusion.warnings, *result.warnings)):
        click.echo(f"warning: {warning}")
    click.echo()
    click.echo("dry run: no verdict" if result.dry else verdict_line(conclusion))
    if conclusion.settle:
        click.echo(f"what would settle it: {conclusion.settle}")
    click.echo(f"{result.status} in {result.seconds:.1f} s; record: {result.directory}")
