"""For authors of commands on past experiments: which records are meant, and names to complete.

Like :mod:`evsys_runtime.commands` it is loaded by the command line only.
"""

from __future__ import annotations

from pathlib import Path

import click

__all__ = [
    "CountedFromTheEnd",
    "central_option",
    "experiment_names",
    "project_folder",
    "records_folder",
    "records_option",
    "run_names",
]

_EXPERIMENTS = Path(".evsys") / "experiments"

records_option = click.option(
    "--records",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Project or output_dir to read.  [default: the project of the current folder]",
)
"""Gives a command the option `--records`, and its function the argument `records`."""

central_option = click.option(
    "--central",
    is_flag=True,
    help="Answer from the team's server in EVSYS_API_URL: all projects that the key in EVSYS_API_KEY may read.",
)
"""Gives a command the option `--central`, and its function the argument `central`; `central_store` gives the server."""


def project_folder() -> Path:
    """The project that the working directory is in, else that directory."""
    from evsys_runtime.config.root import enclosing_project

    return enclosing_project(Path.cwd()) or Path.cwd()


def records_folder(records: Path | None) -> Path:
    """The folder of all experiments meant; it need not exist, unless it was named."""
    if records is None:
        return project_folder() / _EXPERIMENTS
    if not records.is_dir():
        raise click.BadParameter(f"{records} is not a folder", param_hint="'--records'")
    own = records / _EXPERIMENTS
    return (own if own.is_dir() else records).absolute()


def experiment_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Ids to complete, the newest first; read from folder names alone."""
    found = _folders(records_folder(ctx.params.get("records")), "experiment.json")
    return [name for name in ("last", *reversed(found)) if name.startswith(incomplete)]


def run_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Runs of the experiment named before."""
    experiments = records_folder(ctx.params.get("records"))
    named = ctx.params.get("experiment") or ""
    found = _folders(experiments, "experiment.json")
    if named == "last":
        meant = found[-1:]
    elif named in found:  # it may be how another one begins as well
        meant = [named]
    else:
        meant = [name for name in found if name.startswith(named)]
    runs = _folders(experiments / meant[0] / "runs", "run.json") if len(meant) == 1 else []
    return [name for name in runs if name.startswith(incomplete)]


def _folders(path: Path, holding: str) -> list[str]:
    return sorted(found.parent.name for found in path.glob(f"*/{holding}"))


class CountedFromTheEnd(click.Command):
    """A command whose argument may be `-2`, which elsewhere is an option: the second experiment from the end."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Like click's, with `last-1` for `-2`."""
        return super().parse_args(ctx, [_count(text) for text in args])


def _count(text: str) -> str:
    number = text[1:]
    return f"last-{int(number) - 1}" if text[:1] == "-" and number.isdecimal() and int(number) > 0 else text
