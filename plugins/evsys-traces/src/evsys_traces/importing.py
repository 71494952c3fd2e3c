"""From the files of a log to rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import DataError
from evsys_runtime.data.readers import FORMATS as SUFFIXES
from evsys_runtime.data.readers import ReadReport, read_rows
from evsys_traces.formats import items_of
from evsys_traces.items import Nothing
from evsys_traces.spool import Spool
from evsys_traces.trace import LeftOut

__all__ = ["ImportReport", "files_of", "import_traces"]

type Row = dict[str, Any]


@attrs.define(kw_only=True)
class ImportReport:
    """The counts of an import: rows and what it left out.

    Attributes:
        records: documents that were read.
        rows: conversations that were kept.
        formats: documents by format.
        left_out: what was left out, by reason; a document of many spans may hold many.
        examples: the place of the first one of each reason, `file:line`.
        feedback: judgements that were joined to a conversation.
        feedback_unmatched: those of calls that are not in the log.
        redacted: what the step `redact` replaced, by kind.
    """

    records: int = 0
    rows: int = 0
    formats: Counter[str] = attrs.field(factory=Counter)
    left_out: Counter[str] = attrs.field(factory=Counter)
    examples: dict[str, str] = attrs.field(factory=dict)
    feedback: int = 0
    feedback_unmatched: int = 0
    redacted: Counter[str] = attrs.field(factory=Counter)

    def leave_out(self, reason: str, place: str) -> None:
        """Count something left out."""
        self.left_out[reason] += 1
        self.examples.setdefault(reason, place)


def files_of(sources: Iterable[Path]) -> list[Path]:
    """The files of a log: each file named, and all of a folder in the order of their names.

    Raises:
        DataError: a source does not exist, or a folder has nothing to read.
    """
    found: list[Path] = []
    for source in sources:
        if not source.exists():
            raise DataError("no such file or folder", source=str(source))
        if not source.is_dir():
            found.append(source)
            continue
        inside = sorted(path for path in source.rglob("*") if path.is_file() and path.suffix.lower() in _LOGS)
        if not inside:
            others = sorted({path.suffix for path in source.rglob("*") if path.is_file()})
            hint = (
                "export as JSON Lines instead"
                if ".parquet" in others
                else f"known are {', '.join(sorted(_LOGS))}"
            )
            raise DataError("the folder has no logs", source=str(source), hint=hint)
        found += inside
    return found


_LOGS = {suffix for suffix, name in SUFFIXES.items() if name in ("json", "jsonl")}


def import_traces(
    files: Iterable[Path],
    report: ImportReport,
    *,
    format: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Row]:
    """The conversations of a log, each in its last state; nothing comes before all files are read.

    Args:
        files: JSON Lines, or JSON arrays. Documents of several formats may be mixed.
        report: filled while reading.
        format: `openai`, `otlp`, `openinference` or `langfuse`; None goes by each document.
        progress: called with the number of documents read.

    Raises:
        DataError: a file can't be read, or holds nothing that can.
    """
    with Spool() as spool:
        for path in files:
            for place, document in _documents(path, report):
                _take(document, place, format, spool, report)
                report.records += 1
                progress(report.records)
        for row in spool.rows():
            report.rows += 1
            report.feedback += len(row["metadata"].get("feedback", ()))
            yield row
        report.left_out.update(spool.left_out)
        report.feedback_unmatched = spool.feedback_unmatched


def _documents(path: Path, report: ImportReport) -> Iterator[tuple[str, Row]]:
    read = ReadReport(source=str(path))
    try:
        for document in read_rows(path, on_bad_row="skip", report=read):
            yield read.place(), document
    finally:
        for kind, count in read.skipped.items():
            report.left_out[f"a line that is {kind}"] += count
        for line, kind, _ in read.problems:
            report.examples.setdefault(f"a line that is {kind}", f"{path}:{line}")


def _take(document: Row, place: str, format: str | None, spool: Spool, report: ImportReport) -> None:
    try:
        name, items = items_of(document, format)
        report.formats[name] += 1
        while True:
            try:
                item = next(items)
            except StopIteration:
                return
            if isinstance(item, Nothing):
                report.leave_out(item.reason, place)
            else:
                spool.add(item)
    except LeftOut as exc:
        report.leave_out(str(exc), place)
