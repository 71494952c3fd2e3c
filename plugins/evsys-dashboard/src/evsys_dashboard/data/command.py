"""`evsys dataset`, and the same commands below `evsys benchmark`: the versions on a team's server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_runtime import echo, json_option, print_json
from evsys_runtime.commands import column_lines

if TYPE_CHECKING:
    from evsys_dashboard.data.client import DataClient
    from evsys_dashboard.data.shapes import DataVersion, Kind, ShownVersion, Split, Uploaded

__all__ = [
    "benchmark_list",
    "benchmark_pull",
    "benchmark_show",
    "benchmark_upload",
    "benchmark_versions",
    "dataset",
]

_server_options = (
    click.option("--url", envvar="EVSYS_API_URL", help="Address of the server.  [default: EVSYS_API_URL]"),
    click.option(
        "--project",
        envvar="EVSYS_API_PROJECT",
        help="Project on the server.  [default: EVSYS_API_PROJECT, or the one that the key is for]",
    ),
    json_option,
)
_upload_options = (
    click.option(
        "--from",
        "made_from",
        multiple=True,
        metavar="VERSION",
        help="ID of a version that this one was made from; may be repeated.",
    ),
    click.option("--note", help="What to know about this version."),
)
_rows_option = click.option(
    "--rows",
    default=0,
    show_default=True,
    type=click.IntRange(0, 200),
    help="Also print the first rows. Those of a test set need the scope `test`, and are counted.",
)


def _add_options(*groups: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return add


@click.group()
def dataset() -> None:
    """Upload, list, show and pull the datasets on a team's server.

    Needs EVSYS_API_URL and EVSYS_API_KEY. Experiments name these datasets by `dataset_id` or `dataset_name`, with `data_store: {kind: evsys}`.
    """


@dataset.command("upload")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--sealed", is_flag=True, help="Let only keys with the scope `test` read its rows.")
@_add_options(_upload_options, _server_options)
def dataset_upload(name: str, file: Path, *, sealed: bool, **options: Any) -> None:
    """Upload the rows of FILE as a new version of NAME.

    FILE is JSON lines, JSON or CSV. Only what the server lacks is sent, so repeat an interrupted command to continue. The same rows
    under the same name give the version that is there.
    """
    from evsys_runtime.data.readers import read_rows

    _upload("datasets", name, file, read_rows(file), split="test" if sealed else None, **options)


@click.command("benchmark.upload")
@click.argument("name")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--split",
    type=click.Choice(["val", "test"]),
    default="val",
    show_default=True,
    help="`test` lets only keys with the scope `test` read its tasks, and counts each read.",
)
@_add_options(_upload_options, _server_options)
def benchmark_upload(name: str, path: Path, *, split: Split, **options: Any) -> None:
    """Upload the tasks in PATH as a new version of the benchmark NAME.

    PATH is a file of tasks, or a folder with tasks.jsonl. Every task is checked first. Only what the server lacks is sent, so repeat
    an interrupted command to continue.
    """
    _upload("benchmarks", name, path, _tasks(path), split=split, **options)


def _tasks(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a benchmark, once all of them are known to be tasks."""
    from evsys.errors import DataError
    from evsys_runtime.data.benchmark import load_tasks, tasks_file
    from evsys_runtime.data.readers import read_rows

    tasks, _ = load_tasks(path, project_root=Path.cwd())
    if tasks_file(path).is_dir() or any(task.path is not None for task in tasks):
        raise DataError(
            "tasks that lie in folders can't be uploaded",
            source=str(path),
            hint="keep them in your repository, and name them by `path`",
        )
    return read_rows(tasks_file(path))


def _upload(
    kind: Kind,
    name: str,
    path: Path,
    rows: Iterator[Mapping[str, Any]],
    *,
    split: Split | None,
    made_from: tuple[str, ...],
    note: str | None,
    url: str | None,
    project: str | None,
    as_json: bool,
) -> None:
    from evsys_dashboard.data.client import checked_file
    from evsys_dashboard.data.progress import progress
    from evsys_dashboard.data.shapes import refuse_odd_name

    refuse_odd_name(name)
    with _client(url, project) as client, checked_file(rows, str(path)) as file:
        try:
            with progress(f"sending {name}", sys.stderr) as tell:
                made = client.upload(
                    file, kind, name, split=split, made_from=made_from, note=note, source=path.name, tell=tell
                )
        except KeyboardInterrupt:
            echo("Interrupted. Repeat the command to send what is missing.", err=True)
            raise
    _print(made, as_json, _uploaded_lines(made))


def _uploaded_lines(made: Uploaded) -> Iterator[str]:
    version = made.version
    yield version.id
    if made.existed and version.id != made.latest:
        yield f"These rows are version {version.number} already; the latest is {made.latest}."
    elif made.existed:
        yield f"These rows are version {version.number} already."
    else:
        yield f"Version {version.number} of {version.name}, {version.rows} rows."


def _list(kind: Kind, *, text: str, url: str | None, project: str | None, as_json: bool) -> None:
    with _client(url, project) as client:
        found = client.catalogue(kind, text=text)
    heads = ("name", "versions", "latest", "rows", "split", "uploaded")
    rows = [
        (
            each.name,
            str(each.versions),
            each.latest.id,
            str(each.latest.rows),
            each.latest.split or "",
            _day(each.latest),
        )
        for each in found.names
    ]
    lines = column_lines(heads, rows) if rows else [f"There are no {kind} yet."]
    more = found.total - len(rows)
    _print(found, as_json, [*lines, *([f"and {more} more"] if more else [])])


def _versions(kind: Kind, name: str, *, url: str | None, project: str | None, as_json: bool) -> None:
    with _client(url, project) as client:
        found = client.versions(kind, name)
    rows = [
        (
            str(each.number),
            each.id,
            str(each.rows),
            each.split or "",
            _day(each),
            ", ".join(each.made_from),
            each.note or "",
        )
        for each in found.versions
    ]
    heads = ("version", "id", "rows", "split", "uploaded", "made from", "note")
    _print(found, as_json, column_lines(heads, rows))


def _show(kind: Kind, ref: str, *, rows: int, url: str | None, project: str | None, as_json: bool) -> None:
    from evsys_record.encoding import as_tree, encode_record

    with _client(url, project) as client:
        found = client.show(kind, ref)
        listed = client.rows(kind, found.version.id, limit=rows).rows if rows else ()
    if as_json:
        print_json({**as_tree(found), "rows": [as_tree(each) for each in listed]})
        return
    for line in _shown_lines(found):
        echo(line)
    for each in listed:
        echo(each.text if each.row is None else encode_record(each.row))


def _shown_lines(found: ShownVersion) -> Iterator[str]:
    version = found.version
    facts = {
        "id": version.id,
        "version": f"{version.number} of {version.name}"
        + ("" if version.id == found.latest else f"; the latest is {found.latest}"),
        "rows": str(version.rows),
        "bytes": str(version.size),
        "hash": version.content_hash,
        "split": version.split,
        "reads": None if found.reads is None else f"{found.reads} of its rows so far",
        "uploaded": " ".join(filter(None, (version.created, version.key and f"with {version.key}"))),
        "file": version.file,
        "note": version.note,
        "made from": ", ".join(version.made_from),
        "made into": ", ".join(found.made_into),
        "used by": ", ".join(each.experiment for each in found.used_by),
    }
    width = max(map(len, facts))
    yield from (f"{name.ljust(width)}  {value}" for name, value in facts.items() if value)


def _pull(kind: Kind, ref: str, *, url: str | None, project: str | None, as_json: bool) -> None:
    from evsys_dashboard.data.store import EvsysStore
    from evsys_record.encoding import as_tree
    from evsys_runtime import Workspace
    from evsys_runtime.config.root import find_project_root
    from evsys_runtime.data.scope import DataScope, use_scope

    root = find_project_root(Path.cwd() / "_")
    workspace = Workspace(
        root, store=EvsysStore(url=url, project=project), tell=lambda text: echo(text, err=True)
    )
    try:
        with use_scope(DataScope(project_root=root)):
            entry = workspace.pull_dataset(ref) if kind == "datasets" else workspace.pull_benchmark(ref)
    except KeyboardInterrupt:
        echo("Interrupted. Repeat the command to pull what is missing.", err=True)
        raise
    facts = {
        "id": entry.id,
        "path": str(entry.path),
        "rows": entry.row_count,
        "content_hash": entry.content_hash,
    }
    if as_json:
        print_json(as_tree(facts))
    else:
        echo(f"{entry.id}: {entry.row_count} rows in {entry.path}")


def _print(found: Any, as_json: bool, lines: Any) -> None:
    from evsys_record.encoding import as_tree

    if as_json:
        print_json(as_tree(found))
        return
    for line in lines:
        echo(line)


def _day(version: DataVersion) -> str:
    return version.created[:10]


@contextmanager
def _client(url: str | None, project: str | None) -> Iterator[DataClient]:
    from evsys_dashboard.data.client import DataClient
    from evsys_dashboard.remote import Remote

    client = DataClient(Remote.from_environment(url, project))
    try:
        yield client
    finally:
        client.close()


def _further(kind: Kind) -> tuple[click.Command, click.Command, click.Command, click.Command]:
    """The commands that are the same for both kinds: list, versions, show, pull."""
    one = kind.removesuffix("s")
    prefix = "benchmark." if kind == "benchmarks" else ""  # by which `evsys benchmark` finds its commands

    @click.command(f"{prefix}list", help=f"List the {kind} on the server.")
    @click.option("--text", default="", help="Only names that contain this.")
    @_add_options(_server_options)
    def list_names(**options: Any) -> None:
        _list(kind, **options)

    @click.command(f"{prefix}versions", help=f"List the versions of the {one} NAME, the newest first.")
    @click.argument("name")
    @_add_options(_server_options)
    def versions(name: str, **options: Any) -> None:
        _versions(kind, name, **options)

    @click.command(
        f"{prefix}show",
        help=f"Show a version of a {one}.\n\nThat includes what it was made from, and who used it. REF is the ID of a version, or a name for its latest one.",
    )
    @click.argument("ref")
    @_rows_option
    @_add_options(_server_options)
    def show(ref: str, **options: Any) -> None:
        _show(kind, ref, **options)

    @click.command(
        f"{prefix}pull",
        help=f"Pull a version of a {one} into this project's cache.\n\n"
        "Experiments find it there without a network. REF is the ID of a version, or a name for its latest one. Repeat an interrupted command to continue.",
    )
    @click.argument("ref")
    @_add_options(_server_options)
    def pull(ref: str, **options: Any) -> None:
        _pull(kind, ref, **options)

    return list_names, versions, show, pull


for _command in _further("datasets"):
    dataset.add_command(_command)
benchmark_list, benchmark_versions, benchmark_show, benchmark_pull = _further("benchmarks")
