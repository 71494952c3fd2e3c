"""Rows through transforms: lazily, every failure with the transform and the row it happened at, every row counted.

Transforms get the rows of the one before. A transform that changes rows it was given does no harm to anyone else,
since every reading makes its rows again; `check_mutation` finds such transforms.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys.errors import PLUGIN_FAILURES, DataError, EvsysError, PluginContractError
from evsys.optional import declared
from evsys_runtime.data.json_rows import is_row, row_type_name
from evsys_runtime.data.lineage import TransformLineage, derive_seed
from evsys_runtime.data.messages import RowProblem
from evsys_runtime.data.readers import ReadReport
from evsys_runtime.data.sources import source_hash

__all__ = ["NO_REASON", "Stage", "apply", "build_stages", "drop_counts", "keeps_position", "left_unread"]

NO_REASON = "no reason given"
HELD_BACK = "held back, or left out without a reason"
"""The reason given for rows that a transform had taken when its reader stopped, and that it doesn't account for."""

_ABSENT = object()


def literal_params(params: Any) -> Any:
    """Params that name nothing which is still to be put in."""
    return params


@attrs.define(kw_only=True)
class Stage:
    """A transform in a pipeline, with what went in and came out.

    A transform may offer `dropped`, a mapping of reason to count that it resets when it starts, and `streaming`, True
    when it handles one row at a time, in order: then a later problem can still name the line it came from.

    `ended` is True once it has given its last row, `unread` counts the rows that it had ready when the reader stopped.
    """

    name: str
    transform: Callable[[Iterable[Mapping[str, Any]]], Iterable[Mapping[str, Any]]]
    params: Mapping[str, Any] = attrs.field(factory=dict)
    given_seed: int | None = None
    rows_out: int = 0
    taken: int = attrs.field(default=0, init=False)
    source_ended: bool = attrs.field(default=False, init=False)
    reader_failed: bool = attrs.field(default=False, init=False)
    ended: bool = attrs.field(default=False, init=False)
    unread: int = attrs.field(default=0, init=False)
    cut_short: bool = attrs.field(default=False, init=False)
    output: Iterator[Mapping[str, Any]] = attrs.field(factory=lambda: iter(()), init=False, repr=False)
    _before: Stage | None = attrs.field(default=None, init=False, repr=False)

    @property
    def rows_in(self) -> int:
        """Rows that the transform has taken."""
        return self.taken if self._before is None else self._before.rows_out - self._before.unread

    @property
    def took_all(self) -> bool:
        """True once it has taken all rows that there are."""
        return self.source_ended if self._before is None else self._before.ended

    @property
    def source_failed(self) -> bool:
        """True once reading the source has failed."""
        return self.reader_failed if self._before is None else self._before.source_failed

    def start(self, before: Stage | None) -> None:
        """Begin again, behind `before`."""
        self.rows_out = self.taken = self.unread = 0
        self.source_ended = self.reader_failed = self.ended = self.cut_short = False
        self._before = before

    @property
    def lineage(self) -> TransformLineage:
        """How the record keeps it; made when it is asked for, since hashing code takes some milliseconds."""
        uses = {name: source_hash(used) for name, used in declared(self.transform, "uses", {}).items()}
        return TransformLineage(
            kind=self.name,
            params=self.params,
            source_hash=source_hash(self.transform),
            seed=self.given_seed,
            uses=uses,
        )

    @property
    def streaming(self) -> bool:
        """True when the transform says that it handles one row at a time."""
        return declared(self.transform, "streaming", False) is True

    def reasons(self) -> Counter[str]:
        """How many rows did not come through, by reason; transforms that add rows have none."""
        given = declared(self.transform, "dropped")
        reasons: Counter[str] = Counter(given if isinstance(given, Mapping) else {})
        unexplained = self.rows_in - self.rows_out - reasons.total()
        if unexplained > 0:
            open_end = self.cut_short and not self.took_all and not self.streaming
            reasons[HELD_BACK if open_end else NO_REASON] += unexplained
        return reasons


def build_stages(
    specs: Sequence[Any],
    registry: Any,
    *,
    seed: int = 0,
    path: str = "$.transforms",
    resolve: Callable[[Any], Any] = literal_params,
) -> list[Stage]:
    """Build transforms from `{kind, params}` entries (mappings or objects).

    A transform that has `seed` and was given none gets one derived from `seed`, its kind and how many of its kind came
    before it, so adding a filter in front of a shuffle changes no order.

    Args:
        specs: the entries, in order.
        registry: where kinds are looked up (`evsys.Registry`).
        seed: what missing seeds are derived from; arms of an experiment share it.
        path: the place of the list in the experiment file.
        resolve: puts in what params only name, such as `${NAME}`; the lineage keeps them as they were written.
    """
    stages: list[Stage] = []
    built: Counter[str] = Counter()
    for index, spec in enumerate(specs):
        kind, params = _kind_and_params(spec)
        transform = registry.build("transform", kind, resolve(params), path=f"{path}[{index}].params")
        given_seed = None
        if getattr(transform, "seed", 0) is None:
            given_seed = transform.seed = derive_seed(seed, kind, built[kind])
        built[kind] += 1
        stages.append(Stage(name=kind, transform=transform, params=params, given_seed=given_seed))
    return stages


def apply(
    rows: Iterable[Mapping[str, Any]],
    stages: Sequence[Stage],
    *,
    source: ReadReport | None = None,
    check_mutation: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """Stream `rows` through all stages.

    Args:
        rows: what a reader or a store gives.
        stages: from `build_stages`; their counts are filled.
        source: the reader's report, to name lines in errors.
        check_mutation: compare each row before and after each transform saw it (slow, for tests and debugging).

    Raises:
        DataError: a transform failed, or none of its rows came through; names the transform, the row, the reasons.
        PluginContractError: a transform yields what is not a mapping, or changed a row that it was given.
    """
    source = source if source is not None else ReadReport()
    reader = iter(rows)
    stream = _from_source(reader, stages[0] if stages else None, source)
    before: Stage | None = None
    watches: list[_Watch] = []
    for stage in stages:
        stage.start(before)
        if check_mutation:
            watches.append(_Watch(stage))
            stream = watches[-1].over(stream)
        stream = stage.output = _apply(stream, stage, source)
        before = stage
    try:
        yield from stream
    except Exception:
        # A failed transform leaves the reader suspended, with its file open until the garbage collector comes.
        if isinstance(reader, Generator):
            reader.close()
        raise
    for watch in watches:
        watch.check_all()
    _check_left(stages)


def left_unread(stages: Sequence[Stage], *, source_ended: bool = False) -> int | None:
    """Account for rows when a reader stops before the end: how many it left unread, None where the source has more.

    `source_ended` says that the source hasn't, although no one asked it for another row. A transform that takes all rows before it gives one (`shuffle`) has the others ready; they are counted here, and are
    not among those that it left out.
    """
    for stage in stages:
        stage.cut_short = True
    if stages:
        stages[0].source_ended |= source_ended
    last = next((stage for stage in reversed(stages) if stage.took_all), None)
    if last is None:
        return 0 if source_ended else None
    last.unread = sum(1 for _ in last.output)
    return last.unread


def _from_source(
    rows: Iterable[Mapping[str, Any]], first: Stage | None, source: ReadReport
) -> Iterator[Mapping[str, Any]]:
    """Count what the first stage takes, and attribute what fails in a source that isn't ours."""
    try:
        if first is None:
            yield from rows
            return
        for row in rows:
            first.taken += 1
            yield row
        first.source_ended = True
    except PLUGIN_FAILURES as exc:
        if first is not None:
            first.reader_failed = True
        if isinstance(exc, EvsysError):
            raise
        raise DataError(
            f"reading failed: {_words(exc)}", source=source.source or None, line=source.line
        ) from exc


def _apply(
    rows: Iterator[Mapping[str, Any]], stage: Stage, source: ReadReport
) -> Iterator[Mapping[str, Any]]:
    try:
        output: Any = stage.transform(rows)
        if not isinstance(output, Iterable) or isinstance(output, Mapping | str):
            raise _no_rows(stage, output)
        for row in output:
            if type(row) is not dict and not is_row(row):  # the first question is a third of the cost
                raise PluginContractError(
                    f"transform {stage.name!r} gave {row_type_name(row)} as row {stage.rows_out}, not a mapping",
                    hint="yield the row's columns as a dict",
                )
            stage.rows_out += 1
            yield row
        stage.ended = True
    except DataError as exc:
        if stage.source_failed or "plugin" in exc.facts:  # failed before this transform, and says where
            raise
        raise _transform_error(stage, source, exc) from exc
    except EvsysError:
        raise
    except PLUGIN_FAILURES as exc:
        raise _transform_error(stage, source, exc) from exc


def _transform_error(stage: Stage, source: ReadReport, exc: BaseException) -> DataError:
    place = f" ({source.place()})" if source.line is not None else ""
    after = f"after taking row {stage.rows_in - 1}{place}" if stage.rows_in else "before taking a row"
    facts = exc.facts if isinstance(exc, DataError) else {}
    return DataError(
        f"transform {stage.name!r} failed {after}: {_words(exc)}",
        **{**facts, "plugin": stage.name, "row": stage.rows_in - 1},
    )


def _no_rows(stage: Stage, output: Any) -> PluginContractError:
    hint = "yield each row, or return a list of them"
    if inspect.iscoroutine(output) or inspect.isasyncgen(output):
        hint = "define it with a plain `def`"
        if inspect.iscoroutine(output):
            output.close()  # it was never to run, and needn't warn of it
    return PluginContractError(
        f"transform {stage.name!r} returned {row_type_name(output)}, not rows", hint=hint
    )


def _words(exc: BaseException) -> str:
    if isinstance(exc, RowProblem | DataError):  # says what is wrong with the row, so its type adds nothing
        return str(exc)
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


class _Watch:
    """Copies of all rows that a transform takes, compared when it asks for the next one and again at the end."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._seen: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []

    def over(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for row in rows:
            self._seen.append((row, copy.deepcopy(row)))
            yield row
            self._check(len(self._seen) - 1)

    def check_all(self) -> None:
        for index in range(len(self._seen)):
            self._check(index)

    def _check(self, index: int) -> None:
        row, before = self._seen[index]
        if row == before:
            return
        columns = sorted(
            {str(key) for key in {*row, *before} if row.get(key, _ABSENT) != before.get(key, _ABSENT)}
        )
        raise PluginContractError(
            f"transform {self._stage.name!r} changed row {index} that it was given, in {', '.join(columns)}",
            hint="make a new one: `{**row, 'column': value}`",
        )


def _check_left(stages: Sequence[Stage]) -> None:
    """No silent nothing: rows went in and none came out."""
    for stage in stages:
        if stage.rows_out:
            continue
        if not stage.rows_in:
            hint = "the source is empty, or the transform doesn't read the rows it is given"
            raise DataError(
                f"transform {stage.name!r} took no row and gave none", hint=hint, plugin=stage.name
            )
        reasons = stage.reasons()
        told = "; ".join(f"{reason}: {count}" for reason, count in reasons.most_common(10))
        raise DataError(
            f"transform {stage.name!r} let none of {stage.rows_in} rows through ({told})",
            hint="look at the reasons, and at the columns with `evsys data preview`",
            plugin=stage.name,
            reasons=dict(reasons),
        )


def drop_counts(stages: Sequence[Stage]) -> Counter[str]:
    """All rows that did not come through, as `transform: reason`."""
    return Counter(
        {f"{stage.name}: {reason}": n for stage in stages for reason, n in stage.reasons().items()}
    )


def keeps_position(stages: Sequence[Stage]) -> bool:
    """True when the row that comes out last is made from the row read last."""
    return all(stage.streaming for stage in stages)


def _kind_and_params(spec: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, Mapping):
        return spec["kind"], dict(spec.get("params") or {})
    return spec.kind, dict(spec.params or {})
