"""`evsys plan`: estimate an experiment's cost and statistical power."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_cli.output import for_terminal, telling, terminal_width
from evsys_cli.records import lab_of
from evsys_runtime import echo, json_option, print_json

__all__ = ["plan"]


@click.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a value of the file.")
@click.option("--no-data", is_flag=True, help="Don't read training rows or run transforms.")
@json_option
def plan(config: Path, *, overrides: tuple[str, ...], no_data: bool, as_json: bool) -> None:
    """Estimate the cost of CONFIG (steps, tokens, time, money) and the effect its verdict can detect, and list similar past experiments.

    Training rows are read through their transforms, as for `data preview`. Nothing is trained, sampled or charged.
    """
    from evsys_runtime.tools.acting import plan as plan_experiment

    found = plan_experiment(lab_of(None), config, overrides, read_rows=not no_data)
    if as_json:
        from evsys_record import result_tree

        print_json(result_tree(found))
        return
    from evsys_cli.plan_lines import plan_lines

    with telling():
        for warning in found.warnings:
            echo(f"warning: {warning}", err=True)
    echo(for_terminal(plan_lines(found, width=terminal_width())))
