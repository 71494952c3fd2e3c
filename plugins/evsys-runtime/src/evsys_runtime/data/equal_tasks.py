"""Tasks that belong together: those with one cluster label, and those that ask the same thing under several ids."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from evsys.types import HarborTask
from evsys_runtime.data.json_rows import canonical
from evsys_runtime.data.words import fold, whole

__all__ = ["clusters_of", "distinct_tasks", "first_equals"]


def clusters_of(tasks: Iterable[HarborTask], key: str | None = None) -> dict[str, str]:
    """The cluster of each task that shares one with another, or that has a label.

    A model answers equal tasks alike, so twenty copies of one task are one observation and not twenty. Groups of equal tasks and
    groups with one label are joined if they share a task.

    Args:
        tasks: the tasks of a benchmark.
        key: the metadata key of labels; None if there are none.
    """
    tasks = list(tasks)
    firsts = first_equals(tasks)
    copied = {first for task, first in firsts.items() if task != first}
    labels = {t.task_id: str(t.metadata[key]) for t in tasks if key is not None and key in t.metadata}
    parents: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        while (parent := parents.get(node, node)) != node:
            node = parent
        return node

    for task_id, label in labels.items():
        one, other = root(("task", firsts[task_id])), root(("label", label))
        if one != other:
            # Labels stay roots, so that a benchmark without equal tasks keeps its labels as they are.
            parents[one] = other
    found = {}
    for task_id, first in firsts.items():
        kind, name = root(("task", first))
        if task_id in labels or first in copied or kind == "label":
            found[task_id] = name if kind == "label" else f"equal to {name}"
    return found


def first_equals(tasks: Iterable[HarborTask]) -> dict[str, str]:
    """By id of each task the id of the first task that asks the same: itself if no earlier one does.

    Two tasks ask the same if their messages and tools do, apart from case, white space, accents, look-alike letters and invisible
    characters. A task with a folder of its own is equal to no other.
    """
    seen: dict[Hashable, str] = {}
    return {task.task_id: seen.setdefault(_content(task), task.task_id) for task in tasks}


def distinct_tasks(tasks: Iterable[HarborTask]) -> int:
    """How many tasks ask something that no earlier one asks."""
    return len(set(first_equals(tasks).values()))


def _content(task: HarborTask) -> Hashable:
    if task.path is not None:
        return ("folder", task.task_id)
    if isinstance(task.instruction, str):
        said: Hashable = (("user", whole(fold(task.instruction))),)
    else:
        said = tuple((message.role, whole(fold(message.content))) for message in task.instruction)
    return (said, canonical({"tools": list(task.tools)}))
