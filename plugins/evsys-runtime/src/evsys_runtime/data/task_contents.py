"""The contents of a benchmark's tasks, regardless of the names of the benchmark, its file and its tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from evsys.types import HarborTask
from evsys_record.task_contents import SKETCH, TaskContents
from evsys_runtime.data.row_texts import expected_texts
from evsys_runtime.data.signatures import signatures_of
from evsys_runtime.data.task_questions import Question, questions_of
from evsys_runtime.data.words import fold

__all__ = ["content_hashes", "task_contents"]

_DIGITS = 10


def task_contents(tasks: Iterable[HarborTask]) -> TaskContents:
    """The contents of these tasks."""
    tasks = list(tasks)
    texts = {_hash(text): text for text in map(_asked_text, tasks, questions_of(tasks))}
    hashes = sorted(texts)
    whole_set = hashlib.sha256(" ".join(hashes).encode()).hexdigest()
    return TaskContents(
        tasks=len(hashes),
        hash=f"sha256:{whole_set}",
        sketch=tuple(hashes[:SKETCH]),
        signatures=signatures_of([texts[each] for each in hashes]),
    )


def content_hashes(tasks: Iterable[HarborTask]) -> dict[str, str]:
    """The hash of what each task asks, by its id."""
    tasks = list(tasks)
    texts = map(_asked_text, tasks, questions_of(tasks))
    return {task.task_id: _hash(text) for task, text in zip(tasks, texts, strict=True)}


def _asked_text(task: HarborTask, question: Question) -> str:
    asked = [*question.texts, *question.systems]
    if not any(asked):  # an environment without words: what it expects, or where it lies, is all there is
        asked = [*map(fold, expected_texts(task)), str(task.path)]
    return "\0".join(asked)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
