"""The looks at questions: every test of one by the experiments of an index, and by those that only the ledger has left."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from evsys.types.evidence import Look
from evsys_record.index import Index
from evsys_record.look_ledger import LedgerLine, LookLedger, ledger_path
from evsys_record.past import LookPlace
from evsys_record.questions import AskedQuestion, ScoredEntry
from evsys_record.task_contents import TaskContents

__all__ = ["Asked", "Ledger", "entries_on_record", "missing_from"]


@attrs.frozen(kw_only=True)
class Asked:
    """A question as an experiment asked it, with the looks that it took, and when it `finished`."""

    experiment_id: str
    question: AskedQuestion
    finished: str
    looks: tuple[Look, ...]


@attrs.frozen(kw_only=True, eq=False)
class Ledger:
    """The questions on record, in the order in which their experiments finished.

    `concluded` has the last look of experiments according to the ledger, None for those that tested nothing.
    """

    asked: tuple[Asked, ...]
    concluded: Mapping[str, Look | None] = attrs.field(factory=dict)

    @classmethod
    def of(cls, index: Index, key: str | None = None) -> Ledger:
        """The looks in an index and in the ledger of its experiments.

        Args:
            index: of the experiments on record, as of now.
            key: of the questions; all by default.
        """
        ledger = LookLedger(ledger_path(index.experiments))
        concluded = {line.experiment_id: line.look for line in ledger.lines if line.state == "concluded"}
        return cls(asked=tuple(_joined(_on_record(index, key), ledger, key)), concluded=concluded)

    @classmethod
    def left(cls, experiments: Path) -> Ledger:
        """The looks in the ledger of a folder without experiments."""
        return cls(asked=tuple(_joined((), LookLedger(ledger_path(experiments)), None)))

    def looks_at(self, question: AskedQuestion, *, apart_from: str | None = None) -> tuple[Look, ...]:
        """All looks at a question, the oldest first, apart from those of one experiment."""
        found = (each for each in self.asked if each.experiment_id != apart_from)
        return tuple(look for each in found if each.question.is_same(question) for look in each.looks)

    def looks_like(self, question: AskedQuestion, *, apart_from: str) -> int:
        """How many looks other experiments took at similar questions."""
        found = (each for each in self.asked if each.experiment_id != apart_from)
        return sum(len(each.looks) for each in found if each.question.is_similar(question))

    def looks_on_other_tasks(self, question: AskedQuestion, *, apart_from: str) -> int:
        """How many looks other experiments took at the same question on other tasks."""
        found = (each for each in self.asked if each.experiment_id != apart_from)
        return sum(len(each.looks) for each in found if each.question.is_elsewhere(question))

    def series_of(self, experiment_id: str) -> tuple[Look, ...]:
        """All looks at the question of an experiment, the oldest first; none if it took none itself."""
        own = next((each for each in self.asked if each.experiment_id == experiment_id), None)
        return () if own is None else self.looks_at(own.question)

    def places(self) -> dict[str, LookPlace]:
        """Of each experiment which look at its question it is, and of how many."""
        alike: dict[AskedQuestion, list[int]] = {}
        for place, each in enumerate(self.asked):
            alike.setdefault(each.question, []).append(place)
        found: dict[str, LookPlace] = {}
        for question, own in alike.items():
            others = (
                places for other, places in alike.items() if other == question or other.is_same(question)
            )
            number, numbers = 0, dict[int, int]()
            for place in sorted(place for places in others for place in places):
                number += len(self.asked[place].looks)
                numbers[place] = number
            found |= {
                self.asked[place].experiment_id: LookPlace(number=numbers[place], of=number) for place in own
            }
        return found


def _on_record(index: Index, key: str | None) -> Iterator[Asked]:
    contents = _contents(index)
    query = (
        "SELECT e.folder, a.question, a.contents, a.finished, a.looks FROM asked a JOIN experiment e ON e.id = a.experiment "
        "WHERE NOT e.dry AND a.looks != '[]' AND (? IS NULL OR a.key = ?) ORDER BY a.finished IS NULL, a.finished, e.folder"
    )
    for folder, question, of, finished, looks in index.rows(query, (key, key)):
        yield Asked(
            experiment_id=folder,
            question=AskedQuestion.of_tree(json.loads(question), contents.get(of)),
            finished=finished or "",
            looks=tuple(Look(**look) for look in json.loads(looks)),
        )


def _joined(on_record: Iterable[Asked], ledger: LookLedger, key: str | None) -> list[Asked]:
    """The looks by the records, and those that the ledger alone has: of deleted experiments, and of conclusions that are gone."""
    found = {each.experiment_id: each for each in on_record}
    changed = []
    for experiment, looks in ledger.looks().items():
        if not looks or key not in (None, looks[-1][0].question.key):
            continue
        line, own = looks[-1][0], found.get(experiment)
        there = Asked(
            experiment_id=experiment,
            question=line.question,
            finished=line.time if own is None else own.finished,
            looks=tuple(look for _, look in looks),
        )
        if own is not None and own.question.key != line.question.key:
            changed.append(there)  # one of the two was edited, so it is a look at both questions
        elif own is None or len(own.looks) < len(looks):
            found[experiment] = there
    return sorted(
        [*found.values(), *changed], key=lambda each: (not each.finished, each.finished, each.experiment_id)
    )


def missing_from(ledger: LookLedger, index: Index, *, apart_from: str) -> list[LedgerLine]:
    """The looks on record of experiments that a ledger doesn't know, apart from one, as lines for it."""
    known = {line.experiment_id for line in ledger.lines} | {apart_from}
    query = "SELECT e.folder FROM asked a JOIN experiment e ON e.id = a.experiment WHERE NOT e.dry AND a.looks != '[]'"
    if {folder for (folder,) in index.rows(query)} <= known:
        return []
    return [
        LedgerLine(
            experiment_id=each.experiment_id,
            time=each.finished,
            state="found",
            question=each.question,
            look=look,
        )
        for each in _on_record(index, None)
        if each.experiment_id not in known
        for look in each.looks
    ]


def entries_on_record(index: Index, split: str | None = None) -> Iterator[tuple[str, ScoredEntry]]:
    """The benchmark entries on record, each once, with the experiment that had it first.

    Args:
        index: of the experiments on record, as of now.
        split: the split of the entries wanted; all by default.
    """
    contents, seen = _contents(index), set[tuple[object, ...]]()
    query = (
        "SELECT e.folder, t.name, t.split, t.hash, t.contents FROM entry t JOIN experiment e ON e.id = t.experiment "
        "WHERE NOT e.dry AND (? IS NULL OR t.split = ?) ORDER BY e.moment, e.folder"
    )
    for folder, name, of_split, entry_hash, of in index.rows(query, (split, split)):
        if (entry_hash, of) not in seen:
            seen.add((entry_hash, of))
            entry = ScoredEntry(name=name, split=of_split, entry_hash=entry_hash, contents=contents.get(of))
            yield folder, entry


def _contents(index: Index) -> Mapping[str | None, TaskContents]:
    rows: Sequence[tuple[str, int, str, str]] = index.rows(
        "SELECT hash, tasks, sketch, signatures FROM contents"
    )
    return {
        key: TaskContents(
            tasks=tasks, hash=key, sketch=tuple(sketch.split()), signatures=tuple(signatures.split())
        )
        for key, tasks, sketch, signatures in rows
    }
