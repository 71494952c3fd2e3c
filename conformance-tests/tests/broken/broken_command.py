"""Commands with one fault each."""

import click


def NotACommand():
    """Print something."""


@click.command("SaysNothing")
def SaysNothing():
    pass


@click.command("run")
def run():
    """Run something else."""
