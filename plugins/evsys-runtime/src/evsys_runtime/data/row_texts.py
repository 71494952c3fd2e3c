"""The texts of a training row, and of a task's question and expected answer, with their roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from evsys.types import ChatMessagesRow, HarborTask, Message, PromptExample

__all__ = ["Part", "expected_texts", "row_texts", "task_texts", "texts_in"]

type Part = Literal["question", "answer", "aside"]
"""The question or context, the answer, and parts besides an answer: reasoning and arguments of tool calls."""


def row_texts(row: Any) -> list[tuple[Part, str]]:
    """The texts of a typed row. Columns that no message was made of are not among them.

    Raises:
        TypeError: it is none of the three shapes.
    """
    if isinstance(row, ChatMessagesRow):
        said = row.messages if row.rejected is None else (*row.messages, *_own(row.rejected, row.messages))
        return list(_message_texts(said))
    if isinstance(row, PromptExample):
        return list(_message_texts((*row.prompt, *row.demonstration)))
    if isinstance(row, HarborTask):
        answers: list[tuple[Part, str]] = [("answer", text) for text in expected_texts(row)]
        return list(_instruction(row)) + answers
    raise TypeError(f"a {type(row).__name__} is not a row")


def task_texts(task: HarborTask) -> list[tuple[Part, str]]:
    """The texts of a task; system messages are left out, since they belong to all tasks."""
    if isinstance(task.instruction, str):
        return [("question", task.instruction)] if task.instruction.strip() else []
    said = [message for message in task.instruction if message.role not in {"system", "developer"}]
    return [(part, text) for part, text in _message_texts(said) if text.strip()]


def expected_texts(task: HarborTask) -> list[str]:
    """The answers that a task's verifier expects, where they are texts or numbers: one, or several to choose from."""
    expected = None if task.verifier is None else task.verifier.expected
    given = expected if isinstance(expected, list | tuple) else [expected]
    return [
        str(value) for value in given if isinstance(value, str | int | float) and not isinstance(value, bool)
    ]


def _instruction(task: HarborTask) -> Iterator[tuple[Part, str]]:
    if isinstance(task.instruction, str):
        yield "question", task.instruction
    else:
        yield from _message_texts(task.instruction)


def _own(rejected: tuple[Message, ...], chosen: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages of a rejected side behind what both sides begin with."""
    shared = next((at for at, (a, b) in enumerate(zip(rejected, chosen, strict=False)) if a != b), None)
    return rejected[min(len(rejected), len(chosen)) if shared is None else shared :]


def _message_texts(messages: Iterable[Message]) -> Iterator[tuple[Part, str]]:
    for message in messages:
        yield ("answer" if message.role == "assistant" else "question"), message.content
        if message.reasoning:
            yield "aside", message.reasoning
        for call in message.tool_calls:
            for text in texts_in(call.arguments):
                yield "aside", text


def texts_in(value: Any) -> Iterator[str]:
    """The texts in plain values, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)
