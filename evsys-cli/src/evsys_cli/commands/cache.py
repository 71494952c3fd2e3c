"""`evsys cache`: explain cache misses, show the cache's size, and clear it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_cli.lazy import GuidedGroup
from evsys_cli.records import experiment_meant
from evsys_runtime import echo, experiment_names, json_option, print_json
from evsys_runtime.command_records import project_folder

if TYPE_CHECKING:
    from evsys_record.lookups import Lookup
    from evsys_runtime.data.result_store import ResultStore

__all__ = ["cache"]

_LONGEST = 60
"""Characters shown of a value; --json prints all."""


@click.group("cache", cls=GuidedGroup)
def cache() -> None:
    """Inspect and clear the cache of scored rollouts."""


@cache.command()
@click.argument("record", metavar="EXPERIMENT|RUN", shell_complete=experiment_names)
@click.argument("benchmark", required=False)
@json_option
def why(record: str, benchmark: str | None, *, as_json: bool) -> None:
    """Explain the cache hits and misses of each evaluation.

    For each evaluation of EXPERIMENT or RUN, prints what was found in the cache and, after a miss, which values differed.

    EXPERIMENT is a folder, an ID or unique prefix, a unique name, or `last`; RUN is a run's folder, or <experiment>/<run>.
    With BENCHMARK, only the evaluations on that benchmark are explained.
    """
    from evsys_record import result_tree
    from evsys_record.lookups import Lookups
    from evsys_runtime.experiment.preflight.cache_report import lookups

    found = lookups(_folder(record), benchmark=benchmark)
    if as_json:
        print_json(result_tree(Lookups(lookups=tuple(found))))
        return
    if not found:
        echo("No evaluation of it used the cache.")
    for lookup in found:
        echo("\n".join(_lines(lookup)))


@cache.command()
@json_option
def info(*, as_json: bool) -> None:
    """Print how many rollouts are cached in this project, and where."""
    from evsys_record import result_tree

    kept = _results().info()
    if as_json:
        print_json(result_tree(kept))
        return
    echo(
        f"{kept.rollouts} rollouts of {kept.scorings} scorings, {_size(kept.size)} of {_size(kept.most_bytes)}"
    )
    echo(kept.path)


@cache.command()
@json_option
def clear(*, as_json: bool) -> None:
    """Delete the cached rollouts of this project; records are unchanged."""
    gone = _results().clear()
    if as_json:
        print_json({"rollouts": gone})
    else:
        echo(f"{gone} rollouts deleted")


def _folder(record: str) -> Path:
    """The folder of an experiment or a run, as named as in all commands on past experiments; an evaluation by its ID."""
    from evsys_runtime.experiment.evaluation import OUTPUT_DIR

    if Path(record).exists():
        return Path(record)
    name, _, run = record.partition("/")
    folder = project_folder() / OUTPUT_DIR / name
    if not folder.is_dir():
        with experiment_meant(record, None) as (index, experiment, named):
            folder, run = index.experiments / experiment, named or ""
    return folder / "runs" / run if run else folder


def _results() -> ResultStore:
    from evsys_runtime import Workspace

    return Workspace(project_folder()).results()


def _lines(lookup: Lookup) -> Iterator[str]:
    scored = (
        f"{lookup.benchmark} of {lookup.model}"
        if lookup.model
        else f"{lookup.benchmark} at step {lookup.step}"
    )
    where = f"{lookup.run}: {scored}"
    if lookup.wanted is None:
        yield f"{where}: not cached, since {lookup.reason}"
        return
    if lookup.used == lookup.wanted:
        yield f"{where}: all {lookup.wanted} rollouts came from the cache"
        return
    yield f"{where}: {lookup.used} of {lookup.wanted} rollouts came from the cache"
    if lookup.reason:
        yield f"  {lookup.found} were there; {lookup.reason}"
    for gap in lookup.missing:
        yield f"  {gap['task_id']} sample {gap['sample_index']}: {gap['why']}"
    if lookup.nearest is not None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(lookup.nearest["created"]))
        yield f"  the nearest scoring is of {moment}, by {lookup.nearest['run']}"
        for difference in lookup.nearest["differences"]:
            yield f"    {_difference(difference)}"
    elif not lookup.missing:
        yield "  nothing is kept of an entry of this name"


def _difference(difference: Mapping[str, Any]) -> str:
    return f"{difference['path']}: {_format_value(difference['found'])} there, {_format_value(difference['wanted'])} here"


def _format_value(value: Any) -> str:
    from evsys_record.encoding import encode

    text = "nothing" if value is None else value if isinstance(value, str) else encode(value)
    if text.startswith("sha256:"):
        text = text[:19]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"
