"""Standard output: either words for people, or exactly one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any, TextIO, cast

import click

__all__ = ["json_option", "json_text", "print_json", "speaks_utf8"]

FORMAT = 1

_STDOUT = "evsys_cli.output.stdout"


def _keep_for_the_document(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    """With `--json`, what plugins print goes to standard error, so that the document stands alone."""
    if value:
        ctx.meta[_STDOUT] = sys.stdout
        ctx.with_resource(redirect_stdout(sys.stderr))
    return value


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    is_eager=True,
    callback=_keep_for_the_document,
    help="Print one JSON document on standard output.",
)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one document; logs and progress go to standard error, so nothing else is here."""
    ctx = click.get_current_context(silent=True)
    stream = cast("TextIO", (ctx.meta if ctx else {}).get(_STDOUT) or sys.stdout)
    click.echo(json_text({"format": FORMAT, **document}, stream), file=stream)


def json_text(document: Mapping[str, Any], stream: TextIO) -> str:
    """A document for a stream; what its encoding may lack is escaped as JSON does it."""
    escaped = not speaks_utf8(stream)
    return json.dumps(document, ensure_ascii=escaped, indent=2, allow_nan=False)


def speaks_utf8(stream: TextIO) -> bool:
    """True for a stream that takes every character."""
    return (stream.encoding or "utf-8").lower().replace("-", "").replace("_", "") == "utf8"
