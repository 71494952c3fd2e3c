"""`evsys data`: training data as the model will see it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_cli.output import json_option, print_json

if TYPE_CHECKING:
    from evsys_runtime.experiment.preview import PreviewedRow

__all__ = ["data"]


@click.group("data")
def data() -> None:
    """Look at training data as the model will see it."""


@data.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option("--arm", help="Name of the arm; the first one by default.")
@click.option("-n", "--rows", default=3, show_default=True, type=click.IntRange(min=1), help="How many rows.")
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the file first."
)
@json_option
def preview(config: Path, *, arm: str | None, rows: int, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the first rows of CONFIG after its transforms and the chat template. Trained tokens are marked.

    On a terminal they are green; elsewhere they stand between ⟦ and ⟧.
    """
    from evsys_runtime.config.validate import load_experiment
    from evsys_runtime.experiment.preview import preview_rows

    found, dropped = preview_rows(load_experiment(config, overrides=overrides), arm=arm, limit=rows)
    if as_json:
        print_json({"rows": [_as_json(row) for row in found], "dropped": {**dropped}})
        return
    for row in found:
        click.echo(f"--- row {row.row_id}: {row.tokens} tokens, {row.trained_tokens} trained")
        click.echo(_marked(row))
    for reason, count in dropped.items():
        click.echo(f"left out: {count} ({reason})")


def _marked(row: PreviewedRow) -> str:
    colours = sys.stdout.isatty()
    parts = []
    for span in row.spans:
        if not span.trained:
            parts.append(span.text)
        else:
            parts.append(click.style(span.text, fg="green", bold=True) if colours else f"⟦{span.text}⟧")
    return "".join(parts)


def _as_json(row: PreviewedRow) -> dict[str, Any]:
    return {
        "row_id": row.row_id,
        "tokens": row.tokens,
        "trained_tokens": row.trained_tokens,
        "spans": [{"text": span.text, "trained": span.trained, "tokens": span.tokens} for span in row.spans],
    }
