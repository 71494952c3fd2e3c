"""Tasks that belong together: those with one cluster label, and those that ask the same or nearly the same under several ids."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from evsys.types import HarborTask
from evsys_runtime.data.json_rows import canonical
from evsys_runtime.data.near_texts import nearly_equal_pairs, outline
from evsys_runtime.data.task_questions import Question, questions_of
from evsys_runtime.data.words import words_of

__all__ = ["clusters_of", "first_alike"]


def clusters_of(
    tasks: Iterable[HarborTask], key: str | None = None, firsts: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The cluster of each task that shares one with another, or that has a label.

    A model answers such tasks alike, so twenty copies of one task are one observation and not twenty. Groups of equal or nearly
    equal tasks and groups with one label are joined if they share a task.

    Args:
        tasks: the tasks of a benchmark.
        key: the metadata key of labels; None if there are none.
        firsts: what `first_alike` gives for these tasks, if that is known.
    """
    tasks = list(tasks)
    firsts = first_alike(tasks) if firsts is None else firsts
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


def first_alike(tasks: Iterable[HarborTask]) -> dict[str, str]:
    """By id of each task the id of the first task that asks the same or nearly the same: itself if no earlier one does.

    Two tasks ask the same if their messages, tools and differing system messages do, apart from case, white space, accents, look-alike
    letters and invisible characters. They ask nearly the same if their messages are `alike` in that words are added or misspelt, not
    replaced. A task with a folder of its own is alike to no other.
    """
    tasks = list(tasks)
    questions = questions_of(tasks)
    seen: dict[Hashable, int] = {}
    equals = [
        seen.setdefault(_content(task, question), number)
        for number, (task, question) in enumerate(zip(tasks, questions, strict=True))
    ]
    different = [number for number, first in enumerate(equals) if number == first]
    leaders = _leaders([tasks[number] for number in different], [questions[number] for number in different])
    first_of = {number: different[leader] for number, leader in zip(different, leaders, strict=True)}
    return {task.task_id: tasks[first_of[first]].task_id for task, first in zip(tasks, equals, strict=True)}


def _leaders(tasks: Sequence[HarborTask], questions: Sequence[Question]) -> list[int]:
    """For each of these tasks the place of the first leader that it is nearly equal to: a task that is nearly equal to none before."""
    texts = [
        "\n".join(question.texts) if task.path is None else ""
        for task, question in zip(tasks, questions, strict=True)
    ]
    around = [(question.systems, _tools(task)) for task, question in zip(tasks, questions, strict=True)]
    earlier: dict[int, list[int]] = {}
    for first, second in nearly_equal_pairs([outline(text, words_of(text)) for text in texts]):
        if around[first] == around[second]:
            earlier.setdefault(second, []).append(first)
    leaders: list[int] = []
    for number in range(len(tasks)):
        leaders.append(next((n for n in earlier.get(number, ()) if leaders[n] == n), number))
    return leaders


def _content(task: HarborTask, question: Question) -> Hashable:
    if task.path is not None:
        return ("folder", task.task_id)
    return (question, _tools(task))


def _tools(task: HarborTask) -> bytes:
    return canonical({"tools": list(task.tools)})
