"""`evsys validate`: everything that can be known before anything is spent."""

from __future__ import annotations

from pathlib import Path

import click

from evsys_runtime.commands import json_option, print_json

__all__ = ["validate"]


@click.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the file first."
)
@click.option(
    "--online",
    is_flag=True,
    help="Also ask the servers that it trains on whether they can; nothing is made there.",
)
@json_option
def validate(config: Path, *, overrides: tuple[str, ...], online: bool, as_json: bool) -> None:
    """Find every problem in CONFIG and in every arm it expands to. Offline by default; nothing is prepared or downloaded."""
    from evsys_runtime.config.validate import load_experiment
    from evsys_runtime.experiment.plan_secrets import refuse_secrets

    plan = load_experiment(config, overrides=overrides)
    refuse_secrets(plan)
    if online:
        import asyncio

        from evsys_runtime.experiment.online import ask_backends

        asyncio.run(ask_backends(plan))
    names = list(dict.fromkeys(arm.name for arm in plan.arms))
    if as_json:
        print_json({"valid": True, "arms": names, "runs": len(plan.arms), "warnings": list(plan.warnings)})
        return
    for warning in plan.warnings:
        click.echo(f"warning: {warning}", err=True)
    runs = len(plan.arms)
    click.echo(f"{config}: valid; {len(names)} arm{'s' * (len(names) != 1)}, {runs} run{'s' * (runs != 1)}")
