"""Standard output: either words for people, or exactly one JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

__all__ = ["json_option", "print_json"]

FORMAT = 1

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on standard output."
)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one document; logs and progress go to standard error, so nothing else is here."""
    click.echo(json.dumps({"format": FORMAT, **document}, ensure_ascii=False, indent=2, allow_nan=False))
