"""`load_dataset`: a run's `data` block to its dataset."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import PLUGIN_FAILURES, ConfigError, DataError, Problem, StoreError, boundary
from evsys_runtime.data import pipeline
from evsys_runtime.data.blocking import wait_for
from evsys_runtime.data.cache import CachedData
from evsys_runtime.data.column_use import ColumnUse
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.data.parse import ParseReport, Shape
from evsys_runtime.data.readers import FORMATS, OnBadRow, ReadReport, read_rows
from evsys_runtime.data.replay import Earlier, Replay
from evsys_runtime.data.scope import DataScope, use_scope

__all__ = ["OpenRows", "Pull", "Source", "load_dataset", "open_rows", "open_source"]

type Found = str | Path | CachedData | Iterable[Mapping[str, Any]]
type Pull = Callable[[str], Found | Awaitable[Found]]
"""Rows of a stored dataset by id or name: a file of rows, an entry of the cache, or rows; or an awaitable of one of
these. It raises `StoreError` when the store can't be reached and nothing is cached."""


@attrs.define(kw_only=True)
class Source:
    """Rows before any transform, with how to name them. `pulled` is the folder of rows pulled from a store."""

    rows: Iterable[Mapping[str, Any]]
    report: ReadReport
    lineage: Mapping[str, Any]
    pulled: Path | None = None
    warnings: tuple[str, ...] = ()


@attrs.define(kw_only=True)
class OpenRows:
    """Rows on their way through transforms; each is read when it is asked for. `replay` puts others between them."""

    source: Source
    stages: list[pipeline.Stage]
    rows: Iterator[Mapping[str, Any]]
    on_bad_row: OnBadRow
    replay: Replay | None = None

    def place(self) -> str | None:
        """`file:line` of the row read last; None where it may not be the one that came out last."""
        known = self.source.report.line is not None and pipeline.keeps_position(self.stages)
        return self.source.report.place() if known and self.replay is None else None


def load_dataset(
    config: Any,
    *,
    shape: Shape,
    project_root: Path,
    registry: Any,
    pull: Pull | None = None,
    spool_dir: Path | None = None,
    seed: int = 0,
    path: str = "$.run.data",
    limit: int | None = None,
    resolve: Callable[[Any], Any] = pipeline.literal_params,
    check_mutation: bool = False,
    follow: Callable[[Callable[[], int]], None] | None = None,
) -> MaterializedDataset:
    """Read, transform, type and keep the rows of a run.

    Blocking; call it in a thread where an event loop runs.

    Args:
        config: a `data` block: an object with the attributes, or a mapping with the keys, of the experiment file.
        shape: what the algorithm takes: `chat`, `pair`, `prompt` or `task`.
        project_root: what relative paths start from.
        registry: where transforms and data stores are looked up.
        pull: fetches `dataset_id` or `dataset_name`.
        spool_dir: where the file of a dataset goes that doesn't fit in memory.
        seed: what transforms without a seed of their own derive theirs from; arms share it.
        path: the block's place in the experiment file, for problems.
        limit: stop after this many rows (a preview).
        resolve: puts in what the params of transforms only name, such as `${NAME}`; the lineage keeps them as written.
        check_mutation: find transforms that change the rows they are given.
        follow: gets a function that counts the rows moved so far, to be called at any time, from any thread.

    Raises:
        ConfigError: the block names no source, or one that can't be used.
        DataError: rows can't be read, transformed or typed, or none is left.
        StoreError: a store failed and there is no fallback.
    """
    scope = DataScope(project_root=project_root, spool_dir=spool_dir)
    with use_scope(scope):
        opened = open_rows(
            *(config, scope, registry, pull),
            seed=seed,
            path=path,
            resolve=resolve,
            check_mutation=check_mutation,
        )
        source, stages = opened.source, opened.stages
        lineage = (source.lineage, *(stage.lineage.as_dict() for stage in stages))
        parsed, columns = ParseReport(), ColumnUse()
        if follow is not None:
            follow(lambda: parsed.rows + sum(stage.taken + stage.rows_out for stage in stages))
        with _naming_pulled(source):
            dataset = MaterializedDataset.from_rows(
                opened.rows if limit is None else _first(opened.rows, limit),
                shape,
                spool_dir=spool_dir,
                on_bad_row=opened.on_bad_row,
                place=opened.place,
                report=parsed,
                columns=columns,
                warnings=source.warnings,
            )
        if opened.replay is not None:  # how many rows were drawn is known now
            lineage = (*lineage, opened.replay.lineage)
        cut_short = limit is not None and parsed.rows + parsed.skipped.total() == limit
        not_read = pipeline.left_unread(stages, source_ended=_is_exhausted(source.rows)) if cut_short else 0
    if not len(dataset):
        raise DataError("holds no rows", source=source.report.source or None)
    dropped = {
        **{f"reading: {kind}": count for kind, count in source.report.skipped.items()},
        **pipeline.drop_counts(stages),
        **{f"{shape}: {kind}": count for kind, count in parsed.skipped.items()},
    }
    warnings = (
        *dataset.warnings,
        *columns.warnings(source.report.source, len(dataset)),
        *_doubtful_answers(source.report.source or "rows", parsed),
    )
    return attrs.evolve(dataset, lineage=lineage, dropped=dropped, not_read=not_read, warnings=warnings)


@contextmanager
def _naming_pulled(source: Source) -> Iterator[None]:
    """A problem with rows that a store gave says where they are kept: they aren't asked for again."""
    try:
        yield
    except DataError as exc:
        if source.pulled is not None:
            kept = f"the store's rows are kept in {source.pulled}; remove it to pull them again"
            exc.hint = kept if exc.hint is None else f"{exc.hint}; {kept}"
        raise


def _doubtful_answers(source: str, parsed: ParseReport) -> tuple[str, ...]:
    """Warnings of answers that can be trained, and are seldom meant."""
    warnings = []
    if parsed.empty_answers:
        said = f"{parsed.empty_answers:,} of {parsed.rows:,} rows end with an empty answer, which teaches the model to say nothing"
        warnings.append(f"{source}: {said}; leave them out with the transform `filter` if that isn't meant")
    if parsed.null_arguments:
        said = f"{parsed.null_arguments:,} of {parsed.rows:,} rows give null for an argument or parameter of a tool"
        warnings.append(
            f"{source}: {said}; remove such keys if the rows came from a table, which fills in null for keys that a row lacks"
        )
    return tuple(warnings)


def open_rows(
    config: Any,
    scope: DataScope,
    registry: Any,
    pull: Pull | None = None,
    *,
    seed: int = 0,
    path: str = "$.run.data",
    resolve: Callable[[Any], Any] = pipeline.literal_params,
    check_mutation: bool = False,
) -> OpenRows:
    """The rows of a `data` block behind its transforms, to be read once; see `load_dataset`.

    Open and read them inside `use_scope(scope)`.

    Raises:
        ConfigError: the block names no source, or one that can't be used.
        DataError: no such file.
        StoreError: a store failed and there is no fallback.
    """
    specs = _get(config, "transforms", ())
    stages = pipeline.build_stages(specs, registry, seed=seed, path=f"{path}.transforms", resolve=resolve)
    source = open_source(config, scope, registry, pull, path=path)
    rows = pipeline.apply(source.rows, stages, source=source.report, check_mutation=check_mutation)
    on_bad_row: OnBadRow = _get(config, "on_bad_row", "error")
    replay = None
    if (given := _get(config, "replay")) is not None:
        earlier = [
            _earlier(
                open_rows(
                    each,
                    scope,
                    registry,
                    pull,
                    seed=seed,
                    path=f"{path}.replay.datasets[{index}]",
                    resolve=resolve,
                )
            )
            for index, each in enumerate(_get(given, "datasets", ()))
        ]
        replay = Replay(ratio=_get(given, "ratio"), earlier=earlier, seed=seed)
        rows = replay(rows)
    return OpenRows(source=source, stages=stages, rows=rows, on_bad_row=on_bad_row, replay=replay)


def _earlier(opened: OpenRows) -> Earlier:
    """A dataset that rows are drawn from, as it was when it was learnt: its transforms draw with the same seed."""
    lineage = {**opened.source.lineage}
    if opened.stages:
        lineage["transforms"] = [stage.lineage.as_dict() for stage in opened.stages]
    return Earlier(source=opened.source.report.source, lineage=lineage, rows=opened.rows)


def open_source(
    config: Any, scope: DataScope, registry: Any, pull: Pull | None = None, *, path: str = "$.run.data"
) -> Source:
    """Find the rows that a `data` block names, without reading more than it must.

    `dataset_id` and `dataset_name` win over `path`, which then is what is read when the store can't be reached.

    Raises:
        ConfigError: no source, or one that can't be used here.
        DataError: no such file.
        StoreError: the store failed.
    """
    reference = _get(config, "dataset_id") or _get(config, "dataset_name")
    kind, rows = _get(config, "source_kind"), _get(config, "rows")
    if reference:
        return _pull(config, reference, scope, pull)
    if _get(config, "hf_dataset") and kind in {None, "hf_dataset"}:
        return _hugging_face(config, scope, registry)
    if rows and kind in {None, "in_memory"}:
        return _memory_source(rows)
    if _get(config, "path") and kind in {None, *FORMATS.values()}:
        return _file(config, scope)
    raise ConfigError([_no_source(kind, path)])


def _file(config: Any, scope: DataScope) -> Source:
    given = str(_get(config, "path"))
    lineage = {"source": "file", "path": given}
    return _file_source(config, scope.resolve(given), given, lineage, _get(config, "source_kind"))


def _file_source(
    config: Any, path: Path, name: str, lineage: Mapping[str, Any], format_name: str | None = None
) -> Source:
    report = ReadReport(source=name)
    on_bad_row: OnBadRow = _get(config, "on_bad_row", "error")
    rows = read_rows(path, format=format_name, on_bad_row=on_bad_row, report=report)
    return Source(rows=rows, report=report, lineage=lineage)


def _memory_source(rows: Any) -> Source:
    lineage = {"source": "in_memory", "rows": len(rows)}
    return Source(rows=_copies(rows), report=ReadReport(source="rows"), lineage=lineage)


def _copies(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The experiment file's own rows belong to all arms, so each reading works on copies."""
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DataError(f"row {index} of `rows` is not a mapping of columns", source="rows")
        yield copy.deepcopy(dict(row))


def _hugging_face(config: Any, scope: DataScope, registry: Any) -> Source:
    name = _get(config, "hf_dataset")
    split = _get(config, "hf_split") or "train"
    store = registry.build("data_store", "hf", {"split": split})
    with use_scope(scope), boundary("store", "hf"):
        rows = wait_for(store.pull(name))
    return Source(
        rows=rows,
        report=ReadReport(source=f"{name} ({split})"),
        lineage={"source": "hf_dataset", "dataset": name, "split": split},
    )


def _pull(config: Any, reference: str, scope: DataScope, pull: Pull | None) -> Source:
    given = _get(config, "path")
    try:
        if pull is None:
            raise StoreError(
                f"no data store is set up to pull dataset {reference!r} from", hint="set `data_store`"
            )
        with boundary("store", "data_store"):
            found = wait_for(pull(reference))
    except StoreError as exc:
        if not given and isinstance(exc.__cause__, DataError):
            raise exc.__cause__ from None  # it is nowhere, which no store is to blame for
        if not given or exc.facts.get("reachable"):
            raise
        source = _file(config, scope)
        warning = f"dataset {reference!r} could not be pulled ({exc.message}); read from {given} instead"
        return attrs.evolve(
            source,
            warnings=(warning,),
            lineage={**source.lineage, "instead_of": reference, "because": exc.message},
        )
    lineage = {"source": "dataset", "ref": reference}
    if isinstance(found, str | Path):
        return _file_source(config, Path(found), reference, lineage)
    if not isinstance(found, CachedData):
        return Source(rows=found, report=ReadReport(source=reference), lineage=lineage)
    lineage |= {"content_hash": found.content_hash, "id": found.id}
    source = _file_source(config, found.path, reference, lineage)
    if found.lineage.get("source") == "store":
        source.pulled = found.directory
    return source


def _no_source(kind: str | None, path: str) -> Problem:
    needs = {"in_memory": "rows", "hf_dataset": "hf_dataset"}
    if kind is not None and kind not in {*FORMATS.values(), *needs}:
        known = ", ".join([*sorted(set(FORMATS.values())), *needs])
        return Problem(
            path=f"{path}.source_kind", message=f"no source kind {kind!r}", hint=f"known are {known}"
        )
    wanted = needs.get(kind or "", "path")
    return Problem(
        path=path,
        message=f"no rows: `source_kind: {kind}` needs `{wanted}`" if kind else "no rows",
        hint=f"give `{wanted}`"
        if kind
        else "give one of `path`, `rows`, `hf_dataset`, `dataset_id`, `dataset_name`",
    )


def _first(rows: Iterator[Mapping[str, Any]], limit: int) -> Iterator[Mapping[str, Any]]:
    for _, row in zip(range(limit), rows, strict=False):
        yield row


def _is_exhausted(rows: Iterable[Mapping[str, Any]]) -> bool:
    """True where a source read in part has nothing more; one that can't say counts as having more."""
    if not isinstance(rows, Iterator):
        return False
    try:
        next(rows)
    except StopIteration:
        return True
    except PLUGIN_FAILURES:  # what comes next can't be read, which is for whoever reads it to tell
        return False
    return False


def _get(config: Any, key: str, default: Any = None) -> Any:
    value = config.get(key) if isinstance(config, Mapping) else getattr(config, key, None)
    return default if value is None else value
