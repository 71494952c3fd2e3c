"""The questions of tasks, as texts to compare: one folding of messages for copies within a benchmark and between
two.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from evsys.types import HarborTask
from evsys_runtime.data.row_texts import task_texts
from evsys_runtime.data.words import fold, whole

__all__ = ["Question", "questions_of"]


@attrs.frozen
class Question:
    """The folded messages of a task, and its system messages where those are not the same in all tasks."""

    texts: tuple[str, ...]
    systems: tuple[str, ...] = ()


def questions_of(tasks: Iterable[HarborTask]) -> list[Question]:
    """The question of each task.

    A system message belongs to the question only if tasks differ in it: one that all have is a setting of the benchmark.
    """
    tasks = list(tasks)
    systems = [_systems(task) for task in tasks]
    differ = len(set(systems)) > 1
    return [
        Question(tuple(whole(fold(text)) for _, text in task_texts(task)), system if differ else ())
        for task, system in zip(tasks, systems, strict=True)
    ]


def _systems(task: HarborTask) -> tuple[str, ...]:
    if isinstance(task.instruction, str):
        return ()
    said = (message.content for message in task.instruction if message.role in {"system", "developer"})
    return tuple(whole(fold(text)) for text in said)
