"""The looks that a project took at its questions, in a file of their own: they count also when their experiment is deleted or edited.

`looks.jsonl` lies beside the index. Each conclusion that tested something appends a line with all looks that its experiment has
taken at the question so far; of an experiment's lines about a question the last one counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.types.evidence import Look
from evsys_runtime.record.encoding import as_tree
from evsys_runtime.record.jsonl import append_record, read_jsonl
from evsys_runtime.record.questions import AskedQuestion
from evsys_runtime.record.task_contents import TaskContents

__all__ = ["Asked", "add_looks", "look_file", "looks_on_file", "question_of_tree"]


@attrs.frozen(kw_only=True)
class Asked:
    """A question as an experiment asked it, with the looks that it took, and when it `finished`."""

    experiment_id: str
    question: AskedQuestion
    finished: str
    looks: tuple[Look, ...]


def look_file(experiments: Path) -> Path:
    """The file of looks of a folder of experiments: beside `.evsys/experiments`, and inside of a folder elsewhere."""
    if experiments.parent.name == ".evsys":
        return experiments.parent / "looks.jsonl"
    return experiments / ".looks.jsonl"


def add_looks(experiments: Path, asked: Asked) -> None:
    """Append a line.

    Raises:
        StoreError: it can't be written.
    """
    question, contents = asked.question, asked.question.contents
    line = {
        "experiment_id": asked.experiment_id,
        "finished": asked.finished,
        "question": as_tree(attrs.evolve(question, contents=None)),
        "contents": None if contents is None else contents.as_json,
        "looks": [as_tree(look) for look in asked.looks],
    }
    append_record(look_file(experiments), line)


def looks_on_file(experiments: Path, key: str | None = None) -> tuple[Asked, ...]:
    """The questions on file with a key, all by default, each with its newest line.

    Raises:
        StoreError: the file can't be read, or a line of it isn't one of `add_looks`.
    """
    found: dict[tuple[str, str], Asked] = {}
    for line in read_jsonl(look_file(experiments), missing_ok=True):
        contents = line["contents"]
        asked = Asked(
            experiment_id=line["experiment_id"],
            question=question_of_tree(
                line["question"], None if contents is None else TaskContents.of_tree(contents)
            ),
            finished=line["finished"],
            looks=tuple(Look(**look) for look in line["looks"]),
        )
        found[asked.experiment_id, json.dumps(line["question"], sort_keys=True)] = asked
    return tuple(asked for asked in found.values() if key in (None, asked.question.key))


def question_of_tree(tree: Mapping[str, Any], contents: TaskContents | None) -> AskedQuestion:
    """A question from its JSON, which has no contents."""
    return AskedQuestion(**{**tree, "levers": tuple(tree["levers"]), "contents": contents})
