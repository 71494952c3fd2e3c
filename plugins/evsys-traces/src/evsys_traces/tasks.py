"""Conversations to training rows, and to a benchmark of later ones: trained on the time before, tested on the time after."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import DataError
from evsys_runtime.data.near_texts import NearTexts, outline
from evsys_runtime.data.readers import read_rows
from evsys_runtime.data.words import fold, whole, words_of
from evsys_traces.trace import moment

__all__ = ["Selection", "SplitReport", "split_traces"]

type Row = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Selection:
    """Which conversations become what.

    Attributes:
        test_share: share of the usable conversations, the latest ones, that become tasks.
        after: or the time after which they do, in seconds since 1970.
        good: the mean score of its feedback from which on an answer is right.
        unjudged: whether conversations without feedback count as right.
        verifier: the verifier of the tasks, which expects the answer that was given.
        params: its params.
    """

    test_share: float = 0.2
    after: float | None = None
    good: float = 0.5
    unjudged: bool = True
    verifier: str = "exact_match"
    params: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.define(kw_only=True)
class SplitReport:
    """The result of a split: rows and tasks, the time between them, and what was left out, by reason."""

    rows: int = 0
    tasks: int = 0
    after: float | None = None
    left_out: Counter[str] = attrs.field(factory=Counter)


def split_traces(path: Path, selection: Selection, report: SplitReport) -> tuple[Iterator[Row], list[Row]]:
    """The training rows, streamed, and the tasks.

    A training row that asks the same, or nearly the same, as a task is left out and counted: the tasks stay as the traffic was.

    Args:
        path: rows of `evsys traces import`.
        selection: which become what.
        report: filled while the training rows are taken.

    Raises:
        DataError: the file can't be read, or one side would be empty.
    """
    times = sorted(time for row, _ in _usable(path, selection, Counter()) if (time := _time(row)) is not None)
    if len(times) < 2:
        raise DataError("fewer than two usable conversations have a time", source=str(path))
    cut = selection.after
    if cut is None:
        cut = times[min(len(times) - 2, max(0, round(len(times) * (1 - selection.test_share)) - 1))]
    if not times[0] <= cut < times[-1]:
        raise DataError(
            "all conversations are on one side of the time that parts them",
            source=str(path),
            hint="choose a time within the log",
        )
    report.after = cut
    tasks: dict[str, Row] = {}
    for task in _tasks(path, selection, cut, report):
        if task["task_id"] in tasks:
            report.left_out["asks the same as another task"] += 1
        tasks.setdefault(task["task_id"], task)
    report.tasks = len(tasks)
    return _training_rows(path, selection, cut, report, list(tasks.values())), list(tasks.values())


def _usable(path: Path, selection: Selection, left_out: Counter[str]) -> Iterator[tuple[Row, float | None]]:
    """The conversations with a right answer, each with its time."""
    for row in read_rows(path):
        facts = row.get("metadata") or {}
        scores = [
            each["score"]
            for each in facts.get("feedback") or ()
            if isinstance(each, Mapping) and isinstance(each.get("score"), int | float)
        ]
        if facts.get("error"):
            left_out["the call failed"] += 1
        elif not scores and not selection.unjudged:
            left_out["without feedback"] += 1
        elif scores and sum(scores) / len(scores) < selection.good:
            left_out["feedback says the answer is wrong"] += 1
        else:
            yield row, _time(row)


def _time(row: Row) -> float | None:
    return moment((row.get("metadata") or {}).get("time"))


def _tasks(path: Path, selection: Selection, cut: float, report: SplitReport) -> Iterator[Row]:
    for row, time in _usable(path, selection, report.left_out):
        if time is None:
            report.left_out["without a time"] += 1
        elif time > cut:
            *asked, answer = row["messages"]
            if not answer["content"].strip():
                report.left_out["the answer has no text"] += 1
                continue
            digest = hashlib.blake2b(
                "\0".join(_questions(row)).encode("utf-8", "surrogatepass"), digest_size=8
            )
            task: dict[str, Any] = {
                "task_id": digest.hexdigest(),
                "instruction": asked,
                "verifier": {
                    "name": selection.verifier,
                    "expected": answer["content"],
                    "params": dict(selection.params),
                },
                "metadata": {"time": (row.get("metadata") or {}).get("time")},
            }
            if row.get("tools"):
                task["tools"] = row["tools"]
            yield task


def _training_rows(
    path: Path, selection: Selection, cut: float, report: SplitReport, tasks: list[Row]
) -> Iterator[Row]:
    asked = [_folded(_texts(task["instruction"])) for task in tasks]
    exact = {whole(folded) for folded, _ in asked}
    near = NearTexts(outline(folded, words) for folded, words in asked)
    for row, time in _usable(path, selection, Counter()):
        if time is None or time > cut:
            continue
        folded, words = _folded(_questions(row))
        if whole(folded) in exact:
            report.left_out["asks the same as a task"] += 1
        elif next(iter(near.find(folded, words)), None) is not None:
            report.left_out["asks nearly the same as a task"] += 1
        else:
            report.rows += 1
            yield row


def _questions(row: Row) -> list[str]:
    return _texts(row["messages"][:-1])


def _texts(messages: Iterable[Any]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "user"]


def _folded(texts: Iterable[str]) -> tuple[str, list[str]]:
    folded = fold("\n".join(texts))
    return folded, words_of(folded)
