"""The ledger of looks: every test of a question by the experiments of an index, from whichever of them one asks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys.types.evidence import Look
from evsys_runtime.data.task_contents import TaskContents
from evsys_runtime.record.index import Index
from evsys_runtime.record.past import LookPlace
from evsys_runtime.record.questions import AskedQuestion, ScoredEntry

__all__ = ["Asked", "Ledger", "entries_on_record"]


@attrs.frozen(kw_only=True)
class Asked:
    """A question as an experiment asked it, with the looks that it took, and when it `finished`."""

    experiment_id: str
    question: AskedQuestion
    finished: str
    looks: tuple[Look, ...]


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
        """
        contents = _contents(index)
        query = (
            "SELECT e.folder, a.question, a.contents, a.finished, a.looks FROM asked a JOIN experiment e ON e.id = a.experiment "
            "WHERE NOT e.dry AND a.looks != '[]' AND (? IS NULL OR a.key = ?) ORDER BY a.finished IS NULL, a.finished, e.folder"
        )
        return cls(
            asked=tuple(
                Asked(
                    experiment_id=folder,
                    question=_question(json.loads(question), contents.get(of)),
                    finished=finished or "",
                    looks=tuple(Look(**look) for look in json.loads(looks)),
                )
                for folder, question, of, finished, looks in index.rows(query, (key, key))
            )
        )

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


def _question(tree: Mapping[str, Any], contents: TaskContents | None) -> AskedQuestion:
    return AskedQuestion(**{**tree, "levers": tuple(tree["levers"]), "contents": contents})
