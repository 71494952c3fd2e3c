"""A command of the command line, `evsys NAME`: a click command, imported when it is called, so that `evsys --help` stays
fast with any number of them.

It prints results on standard output and everything else on standard error, and raises errors of `evsys.errors`; their exit codes
are then the command's.

## On the command line

`evsys kinds` runs it, and `evsys --help` and `evsys list command` list it. A command named like one of evsys itself, such as `run`, can't be
run: that is an error of `evsys list command` and `evsys list --check`, which name its distribution.
"""

import click

from evsys import current_registry


@click.command()
@click.argument("prefix", default="")
def kinds(prefix: str) -> None:
    """Count the installed plugins of each kind whose name starts with PREFIX."""
    entries = [entry for entry in current_registry().entries() if entry.kind.startswith(prefix)]
    for kind in dict.fromkeys(entry.kind for entry in entries):
        click.echo(f"{kind} {sum(entry.kind == kind for entry in entries)}")
