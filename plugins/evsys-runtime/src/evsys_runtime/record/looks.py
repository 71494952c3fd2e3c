"""The ledger of looks: every test of a question by the experiments of an index, from whichever of them one asks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import attrs

from evsys.types.evidence import Look
from evsys_runtime.record.index import Index
from evsys_runtime.record.look_file import Asked, looks_on_file, question_of_tree
from evsys_runtime.record.past import LookPlace
from evsys_runtime.record.questions import AskedQuestion, ScoredEntry
from evsys_runtime.record.task_contents import TaskContents

__all__ = ["Asked", "Ledger", "entries_on_record"]


@attrs.frozen(kw_only=True, eq=False)
class Ledger:
    """The questions on record, in the order in which their experiments finished."""

    asked: tuple[Asked, ...]

    @classmethod
    def of(cls, index: Index, key: str | None = None) -> Ledger:
        """What an index has.

        Args:
            index: of the experiments on record, as of now.
            key: of the questions wanted; all by default.

        Raises:
            StoreError: the file of looks can't be read.
        """
        contents = _contents(index)
        query = (
            "SELECT e.folder, a.question, a.contents, a.finished, a.looks FROM asked a JOIN experiment e ON e.id = a.experiment "
            "WHERE NOT e.dry AND a.looks != '[]' AND (? IS NULL OR a.key = ?) ORDER BY a.finished IS NULL, a.finished, e.folder"
        )
        listed = [
            Asked(
                experiment_id=folder,
                question=question_of_tree(json.loads(question), contents.get(of)),
                finished=finished or "",
                looks=tuple(Look(**look) for look in json.loads(looks)),
            )
            for folder, question, of, finished, looks in index.rows(query, (key, key))
        ]
        return cls(asked=_with_those_on_file(listed, looks_on_file(index.experiments, key)))

    def looks_at(self, question: AskedQuestion, *, apart_from: str | None = None) -> tuple[Look, ...]:
        """All looks at a question, the oldest first, apart from those of one experiment."""
        found = (each for each in self.asked if each.experiment_id != apart_from)
        return tuple(look for each in found if each.question.is_same(question) for look in each.looks)

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
            others = (places for other, places in alike.items() if other.is_same(question))
            number, numbers = 0, dict[int, int]()
            for place in sorted(place for places in others for place in places):
                number += len(self.asked[place].looks)
                numbers[place] = number
            found |= {
                self.asked[place].experiment_id: LookPlace(number=numbers[place], of=number) for place in own
            }
        return found


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
    rows: Sequence[tuple[str, int, str]] = index.rows("SELECT hash, tasks, sketch FROM contents")
    return {
        key: TaskContents(tasks=tasks, hash=key, sketch=tuple(sketch.split())) for key, tasks, sketch in rows
    }


def _with_those_on_file(listed: Sequence[Asked], on_file: Sequence[Asked]) -> tuple[Asked, ...]:
    """The looks of the experiments on record and those that only the file of looks has, because a record was deleted or changed since."""
    found = list(listed)
    for asked in on_file:
        own = [each for each in listed if each.experiment_id == asked.experiment_id]
        if any(each.question.is_same(asked.question) and len(each.looks) >= len(asked.looks) for each in own):
            continue
        found = [each for each in found if each not in own or not each.question.is_same(asked.question)]
        found.append(asked)
    return tuple(sorted(found, key=lambda each: (not each.finished, each.finished, each.experiment_id)))
