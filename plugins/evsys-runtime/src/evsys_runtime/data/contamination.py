"""Which tasks of benchmarks are among training rows: rows go by once, what is found stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from evsys_runtime.data.column_use import ColumnUse, unused_in_tasks
from evsys_runtime.data.row_texts import Part, row_texts
from evsys_runtime.data.task_index import LONG, SHORT, Entry, TaskIndex, grams
from evsys_runtime.data.word_bags import BagMatch, BagScan
from evsys_runtime.data.words import fold, whole, words_of

__all__ = [
    "MATCHES",
    "SHORT_SHARE",
    "BenchmarkCheck",
    "DataCheck",
    "DatasetCheck",
    "FlaggedTask",
    "Match",
    "MatchedRow",
    "Overlap",
    "Scan",
    "best_matches",
    "count_by_match",
]

SHORT_SHARE = 0.7
"""Share of a task's 8-grams that flags it: that of Chowdhery et al. (2022), section 8."""

_MOST_ROWS = 5

type Evidence = Literal["instruction", "near", "words", "ngrams_13", "ngrams_8", "answer"]

type Match = Literal["equal", "normalized", "near"]
"""How a task is in the rows: word for word, but for what folding removes (case, accents, white space, look-alikes), or in part: nearly
equal, in runs of words, by its rarer words, or by its answer."""

MATCHES: tuple[Match, ...] = ("equal", "normalized", "near")


@attrs.frozen(kw_only=True)
class Overlap:
    """How many of a task's n-grams are in the rows, of those looked for."""

    found: int
    of: int


@attrs.frozen(kw_only=True)
class MatchedRow:
    """A row that shares something with a task.

    `row` is its number after the transforms, from 0; `ngrams` counts the task's n-grams that it has; `instruction` is True
    where it has all messages of the task, `near` where it has a text nearly equal to them, or most of their rarer words, `answer` where it has the expected answer.
    """

    row: int
    row_id: str
    ngrams: int
    instruction: bool
    near: bool
    answer: bool


@attrs.frozen(kw_only=True)
class FlaggedTask:
    """A task in the rows, how, and what says so. `answer` is True where one of `rows_matched` rows has its answer
    as well.
    """

    task_id: str
    match: Match
    evidence: tuple[Evidence, ...]
    answer: bool
    ngrams_8: Overlap
    ngrams_13: Overlap
    rows_matched: int
    closest: tuple[MatchedRow, ...]


@attrs.frozen(kw_only=True)
class BenchmarkCheck:
    """A benchmark entry against a dataset. `whole_text_only` counts tasks without an n-gram to look for, which only a
    row with the same text or nearly the same can match; `not_compared` those without any text. `unused` counts tasks by columns that hold part
    of a question and are not asked.
    """

    benchmark: str
    split: str
    tasks: int
    whole_text_only: int
    not_compared: int
    unused: Mapping[str, int]
    flagged: tuple[FlaggedTask, ...]


def best_matches(checks: Iterable[BenchmarkCheck]) -> dict[str, dict[str, Match]]:
    """The flagged tasks of each benchmark entry, with the closest match that any dataset has."""
    found: dict[str, dict[str, Match]] = {}
    for check in checks:
        matches = found.setdefault(check.benchmark, {})
        for task in check.flagged:
            matches[task.task_id] = min(matches.get(task.task_id, "near"), task.match, key=MATCHES.index)
    return found


def count_by_match(matches: Iterable[Match]) -> dict[str, int]:
    """How many tasks are matched in each way, closest first."""
    counts = Counter(matches)
    return {match: counts[match] for match in MATCHES if counts[match]}


@attrs.frozen(kw_only=True)
class DatasetCheck:
    """The rows that some arms train on, at these repeats: a transform that draws rows draws others in each.

    `unused` counts rows by columns whose words reach no message.
    """

    source: str
    arms: tuple[str, ...]
    repeats: tuple[int, ...]
    rows: int
    unused: Mapping[str, int]
    benchmarks: tuple[BenchmarkCheck, ...]


@attrs.frozen(kw_only=True)
class DataCheck:
    """The result of `evsys data check`; `flagged` counts tasks, each once for a dataset and a benchmark entry."""

    flagged: int
    datasets: tuple[DatasetCheck, ...]


@attrs.define
class _TaskHits:
    """The parts of one task found in rows, apart from its n-grams."""

    match: Match = "near"
    near: bool = False
    answer_alone: bool = False
    answer: bool = False
    rows: int = 0
    closest: list[MatchedRow] = attrs.field(factory=list)


@attrs.define
class _RowHits:
    """The parts of one task found in one row."""

    places: set[int] = attrs.field(factory=set)
    texts: set[str] = attrs.field(factory=set)
    written: set[str] = attrs.field(factory=set)
    near: bool = False
    answer: bool = False


class Scan:
    """One dataset against all benchmarks: give it each row once, then ask for the checks.

    Memory: two bytes a word of the benchmarks, and a few rows for each task found.
    """

    def __init__(self, index: TaskIndex) -> None:
        self._index = index
        self._short, self._long = bytearray(len(index.words)), bytearray(len(index.words))
        self._found: dict[int, _TaskHits] = {}
        self._bags = BagScan(index.bags)
        self.columns = ColumnUse()
        self.rows = 0

    def add(self, row: Any) -> None:
        """Look at a typed row."""
        self.columns.add(row)
        texts = row_texts(row)
        hits: dict[int, _RowHits] = {}
        asked: list[tuple[str, list[str]]] = []
        for part, text in texts:
            folded = fold(text)
            words = words_of(folded)
            if part == "question":
                asked.append((folded, words))
            if len(words) >= SHORT and self._index.may_hold(words):
                self._mark(words, hits)
            if part != "aside" and len(words) in self._index.lengths[part]:
                self._mark_whole(part, words, text, hits)
        self._mark_near(asked, hits)
        row_id = str(getattr(row, "row_id", "") or getattr(row, "task_id", ""))
        self._bags.add((word for _, words in asked for word in words), self.rows, row_id)
        if hits:
            self._keep(row_id, texts, hits)
        self.rows += 1

    def checks(self, entries: Sequence[Entry]) -> Iterator[BenchmarkCheck]:
        """The findings for each entry; `entries` are those of the index."""
        first = 0
        for entry in entries:
            numbers = range(first, first + len(entry.tasks))
            comparable = [self._index.comparable(number) for number in numbers]
            flagged = (
                self._flag_task(number, task.task_id)
                for number, task in zip(numbers, entry.tasks, strict=True)
            )
            yield BenchmarkCheck(
                benchmark=entry.name,
                split=entry.split,
                tasks=len(entry.tasks),
                whole_text_only=comparable.count((False, True)),
                not_compared=comparable.count((False, False)),
                unused=unused_in_tasks(entry.tasks, self.columns.used),
                flagged=tuple(task for task in flagged if task is not None),
            )
            first += len(entry.tasks)

    def _mark(self, words: list[str], hits: dict[int, _RowHits]) -> None:
        index = self._index
        for at, gram in enumerate(grams(words, SHORT)):
            for place in index.places.get(gram, ()):
                short = index.short[place]
                long = index.long[place] and words[at : at + LONG] == index.words[place : place + LONG]
                if short:
                    self._short[place] = 1
                if long:
                    self._long[place] = 1
                if short or long:
                    hits.setdefault(index.task_at(place), _RowHits()).places.add(place)

    def _mark_whole(self, part: Part, words: list[str], text: str, hits: dict[int, _RowHits]) -> None:
        known = self._index.questions if part == "question" else self._index.answers
        same_words = known.get(tuple(words))
        if same_words is None:
            return
        said = whole(fold(text))
        for found in same_words:
            if found.text == said and part == "question":
                hit = hits.setdefault(found.task, _RowHits())
                hit.texts.add(said)
                if found.written == text.strip():
                    hit.written.add(said)
            elif found.text == said:
                hits.setdefault(found.task, _RowHits()).answer = True

    def _mark_near(self, asked: Sequence[tuple[str, list[str]]], hits: dict[int, _RowHits]) -> None:
        """Each question of a row, and all of them as one."""
        together = "\n".join(folded for folded, _ in asked), [word for _, words in asked for word in words]
        for folded, words in [*asked, *([together] if len(asked) > 1 else [])]:
            for task in self._index.near.find(folded, words):
                hits.setdefault(task, _RowHits()).near = True

    def _keep(self, row_id: str, texts: Sequence[tuple[Part, str]], hits: dict[int, _RowHits]) -> None:
        said = [whole(fold(text)) for part, text in texts if part == "answer"]
        for task, hit in hits.items():
            found = self._found.setdefault(task, _TaskHits())
            found.answer_alone |= hit.answer
            answer = hit.answer or any(_says(text, self._index.expected[task]) for text in said)
            found.answer |= answer
            found.rows += 1
            instruction = 0 < self._index.parts[task] == len(hit.texts)
            found.near |= hit.near
            if instruction and found.match != "equal":
                found.match = "equal" if len(hit.written) == len(hit.texts) else "normalized"
            matched = MatchedRow(
                row=self.rows,
                row_id=row_id,
                ngrams=len(hit.places),
                instruction=instruction,
                near=hit.near and not instruction,
                answer=answer,
            )
            # Stable, so that of equal rows the first stay.
            closest = sorted(
                [*found.closest, matched], key=lambda row: (not row.instruction, not row.near, -row.ngrams)
            )
            found.closest = closest[:_MOST_ROWS]

    def _flag_task(self, task: int, task_id: str) -> FlaggedTask | None:
        in_other_words = self._bags.matches(task)
        found = self._found.get(task) or (_TaskHits() if in_other_words else None)
        if found is None:
            return None
        short = self._overlap(task, self._short, self._index.short)
        long = self._overlap(task, self._long, self._index.long)
        evidence: list[Evidence] = []
        if any(row.instruction for row in found.closest):
            evidence.append("instruction")
        elif found.near:
            evidence.append("near")
        elif in_other_words:
            evidence.append("words")
            _add_rows(found, in_other_words)
        if long.found:
            evidence.append("ngrams_13")
        if short.of and short.found >= SHORT_SHARE * short.of:
            evidence.append("ngrams_8")
        if found.answer_alone:
            evidence.append("answer")
        if not evidence:
            return None
        return FlaggedTask(
            task_id=task_id,
            match=found.match,
            evidence=tuple(evidence),
            answer=found.answer,
            ngrams_8=short,
            ngrams_13=long,
            rows_matched=found.rows,
            closest=tuple(found.closest),
        )

    def _overlap(self, task: int, found: bytearray, wanted: bytearray) -> Overlap:
        start, end = self._index.starts[task], self._index.starts[task + 1]
        return Overlap(found=found.count(1, start, end), of=wanted.count(1, start, end))


def _add_rows(found: _TaskHits, matches: Sequence[BagMatch]) -> None:
    """Put rows with a task's words in front, those that share nothing else with it as well."""
    known = {row.row: row for row in found.closest}
    there = [
        attrs.evolve(known[match.row], near=True)
        if match.row in known
        else MatchedRow(
            row=match.row, row_id=match.row_id, ngrams=0, instruction=False, near=True, answer=False
        )
        for match in matches
    ]
    rest = [row for row in found.closest if row.row not in {match.row for match in matches}]
    found.closest = [*there, *rest][:_MOST_ROWS]
    found.rows = max(found.rows, len(found.closest))


def _says(text: str, answers: Sequence[str]) -> bool:
    """True when a text is one of the answers, or has one as a run of its words."""
    if text in answers:
        return True
    padded = f" {' '.join(words_of(text))} "
    return any(f" {' '.join(words)} " in padded for answer in answers if (words := words_of(answer)))
