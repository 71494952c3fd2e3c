"""`evsys context`: what to know before the next experiment, in as many tokens as one has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_cli.records import lab_of
from evsys_runtime import (
    central_option,
    central_store,
    echo,
    json_option,
    print_json,
    records_option,
)

if TYPE_CHECKING:
    from evsys_runtime.experiment.insight.results import Context

__all__ = ["context"]

TOKENS = 4000
FEWEST = 300


@click.command()
@click.option(
    "--tokens",
    default=TOKENS,
    show_default=True,
    type=click.IntRange(min=FEWEST),
    help="Maximum length of the summary; 4 bytes count as one token.",
)
@records_option
@central_option
@json_option
def context(*, tokens: int, records: Path | None, central: bool, as_json: bool) -> None:
    """Summarise all experiments on record: what worked and how certain that is, open questions, failures and costs.

    Prints Markdown, or compact JSON, the most useful parts first. Read it before you plan the next experiment.
    """
    from evsys_runtime.experiment.insight.markdown import context_markdown
    from evsys_runtime.tools.reading import context as find_context

    if central:
        from evsys_runtime.experiment.insight.results import Context

        asked = {"tokens": tokens, "form": "json" if as_json else "markdown"}
        found = central_store(records).ask(Context, "context", asked)
    else:
        found = find_context(
            lab_of(records), tokens=tokens, written=_document if as_json else context_markdown
        )
    if as_json:
        from evsys_record import result_tree

        print_json(result_tree(found), compact=True)
    else:
        echo(context_markdown(found))


def _document(found: Context) -> str:
    from evsys_record import result_tree
    from evsys_runtime.tools.caps import compact_text

    return compact_text(result_tree(found))
