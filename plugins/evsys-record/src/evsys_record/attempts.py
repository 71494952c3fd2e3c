"""Attempts at a run, and which of their records are live."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import StoreError
from evsys_record.jsonl import read_jsonl

__all__ = ["Attempt", "is_superseded", "lineage", "live", "read_live"]

type Record = Mapping[str, Any]
type Key = Callable[[Record], Hashable]


@attrs.frozen(kw_only=True)
class Attempt:
    """One go at a run. `n` counts from 1; `parent` is the attempt whose state it continues, from the checkpoint after
    `from_step` optimiser steps. The first attempt, and one that starts over, has no parent.
    """

    n: int
    parent: int | None = None
    from_step: int = 0
    reason: str = "start"
    started: str | None = None


def lineage(attempts: Sequence[Attempt], head: int | None = None) -> dict[int, int | None]:
    """The attempts behind the newest one (or behind `head`), each with the last step that still counts.

    None means every step counts: so it is for the head itself.

    Raises:
        StoreError: a parent is missing.
    """
    by_number = {attempt.n: attempt for attempt in attempts}
    if not by_number:
        return {}
    current = head if head is not None else max(by_number)
    bound: int | None = None
    line: dict[int, int | None] = {}
    while True:
        if current not in by_number or current in line:
            raise StoreError(f"attempt {current} is named but isn't among the attempts {sorted(by_number)}")
        line[current] = bound
        attempt = by_number[current]
        if attempt.parent is None:
            return line
        bound = attempt.from_step if bound is None else min(bound, attempt.from_step)
        current = attempt.parent


def is_superseded(result: Record, attempts: Sequence[Attempt]) -> bool:
    """True for the result of an attempt that a later one continued from, or started over: it is not a result of the run any more."""
    newest = max((attempt.n for attempt in attempts), default=0)
    return bool(result) and result.get("attempt", 1) < newest


def live(records: Iterable[Record], attempts: Sequence[Attempt]) -> Iterator[Record]:
    """The records of the live lineage, streaming: each step once, although a crash may have written it twice.

    A record of an attempt left behind, or of a step after the one from which a later attempt continued, is
    passed over. Records without a step belong to their attempt as a whole. Without attempts everything is live.
    """
    line = lineage(attempts)
    for record in records:
        if not line or _counts(record, line):
            yield record


def _counts(record: Record, line: Mapping[int, int | None]) -> bool:
    number = record.get("attempt", 1)
    if number not in line:
        return False
    bound = line[number]
    step = record.get("step")
    return bound is None or step is None or step <= bound


def read_live(path: Path, attempts: Sequence[Attempt], key: Key) -> Iterator[Record]:
    """The live records of a file, in which a later attempt may have repeated something at an earlier step.

    An evaluation cut off is scored again after a resume, at its own step: of two live records with the same
    `key` that of the later attempt counts. The file is read twice, and only repeated records are held in memory.
    """
    redone = _redone(path, attempts, key) if len(lineage(attempts)) > 1 else {}
    for record in live(read_jsonl(path, missing_ok=True), attempts):
        if not redone or record.get("attempt", 1) >= redone.get(key(record), 0):
            yield record


def _redone(path: Path, attempts: Sequence[Attempt], key: Key) -> dict[Hashable, int]:
    """Keys that a later attempt wrote at a step which its ancestors had reached, with the last attempt that did."""
    start = {attempt.n: attempt.from_step for attempt in attempts if attempt.parent is not None}
    found: dict[Hashable, int] = {}
    for record in live(read_jsonl(path, missing_ok=True), attempts):
        number, step = record.get("attempt", 1), record.get("step")
        if number in start and step is not None and step <= start[number]:
            found[key(record)] = max(number, found.get(key(record), 0))
    return found
