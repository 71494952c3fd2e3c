"""`jsonl_to_chat`: columns to messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime import RowProblem
from evsys_std.transforms.columns import (
    Row,
    as_text,
    history_messages,
    no_column,
    system_messages,
    with_input,
)
from evsys_std.transforms.template_text import CompiledTemplate, template_or_column

__all__ = ["JsonlToChat"]

_MESSAGE_COLUMNS = ("messages", "conversations")
_PAIRS = (
    ("user", "assistant"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "answer"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("input", "output"),
)
_SPEAKERS = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}


class JsonlToChat:
    """Makes `messages` of a row: from a column that holds a conversation, or from what the user and the assistant say, each a
    column or a template such as `Query: {query}`.

    Without parameters it takes the first that a row has: `messages`, `conversations`, then the pairs user/assistant,
    prompt/completion, prompt/response, question/answer, instruction/output, instruction/response, input/output. An `input` or
    `context` next to an instruction is put below it, `history` (pairs of what both said) goes before it, and `system` or
    `system_prompt` of a row in front of all, unless parameters give a system message. All columns are kept, so later transforms can use them, and land
    in the row's metadata. Conversations written with `from` and `value` are understood.
    """

    name: ClassVar[str] = "jsonl_to_chat"
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `jsonl_to_chat`."""

        user_column: str | None = option(
            None,
            "column with the user's message",
            aliases=("user", "user_key", "prompt_column"),
        )
        assistant_column: str | None = option(
            None,
            "column with the assistant's answer",
            aliases=("assistant", "assistant_key", "completion_column"),
        )
        user_template: str | None = option(
            None, "the user's message as a template with {column} in it, instead of `user_column`"
        )
        assistant_template: str | None = option(
            None, "what the assistant answers as a string with {column} in it, instead of `assistant_column`"
        )
        messages_column: str | None = option(
            None, "column with a list of messages", aliases=("messages_key",)
        )
        system_prompt: str | None = option(
            None, "system message put first, unless the row has one of its own", aliases=("system",)
        )
        system_column: str | None = option(None, "column with the row's own system message")
        system_template: str | None = option(
            None, "the system message as a string with {column} in it, instead of the other two"
        )
        missing: Literal["error", "drop"] = option(
            "error", "a row without what is needed: fail, or leave it out and count it"
        )

    def __init__(self, **fields: Any) -> None:
        self.config = config = self.Config(**fields)
        self.dropped: Counter[str] = Counter()
        self._user = template_or_column("user", config.user_template, config.user_column)
        self._assistant = template_or_column("assistant", config.assistant_template, config.assistant_column)
        self._system_text = template_or_column("system", config.system_template, config.system_column)
        if config.system_template is not None and config.system_prompt is not None:
            raise ValueError("give either `system_prompt` or `system_template`")
        self._has_system = any((config.system_prompt, config.system_column, config.system_template))
        user = config.user_column is not None or self._user is not None
        assistant = config.assistant_column is not None or self._assistant is not None
        self._is_pair = user and assistant
        if config.messages_column is not None and (user or assistant):
            raise ValueError("give either `messages_column`, or the columns of the user and the assistant")
        if user != assistant:
            lacking = "assistant" if user else "user"
            raise ValueError(f"`{lacking}_column` or `{lacking}_template` is needed as well")

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        self.dropped = Counter()
        for row in rows:
            try:
                messages = self._messages(row)
            except RowProblem as exc:
                if self.config.missing == "error":
                    raise
                self.dropped[exc.kind] += 1
            else:
                yield {**row, "messages": messages}

    def _messages(self, row: Row) -> list[Any]:
        config = self.config
        if self._is_pair:
            question = _message_of(row, self._user, config.user_column or "user_template")
            answer = _message_of(row, self._assistant, config.assistant_column or "assistant_template")
            return self._exchange(row, question, answer)
        if config.messages_column is not None:
            return self._conversation(row, config.messages_column)
        for column in _MESSAGE_COLUMNS:
            if row.get(column):
                return self._conversation(row, column)
        for user, assistant in _PAIRS:
            if user in row and assistant in row:
                return self._pair(row, user, assistant)
        found = f"no messages and no known pair of columns in {', '.join(map(str, row))}"
        raise RowProblem(
            "no known columns",
            f"{found}; name them with `user_column` and `assistant_column`, or write `user_template` and `assistant_template`"
            if row
            else "the row has no columns",
        )

    def _pair(self, row: Row, user: str, assistant: str) -> list[Any]:
        question, answer = _message_of(row, None, user), _message_of(row, None, assistant)
        if user == "instruction":
            question = with_input(question, row)
        system = self._system(row) if self._has_system else system_messages(row)
        return [*system, *history_messages(row), *_messages_of(question, answer)]

    def _exchange(self, row: Row, question: str, answer: str) -> list[Any]:
        return [*(self._system(row) if self._has_system else ()), *_messages_of(question, answer)]

    def _conversation(self, row: Row, column: str) -> list[Any]:
        said = row.get(column)
        if not isinstance(said, list | tuple) or not said:
            what = "is empty" if said in ([], ()) else "holds no list of messages"
            raise no_column(column, row) if said is None else RowProblem(f"column {column!r} {what}")
        messages = [_message(item) for item in said]
        first = messages[0]
        if isinstance(first, Mapping) and first.get("role") in {"system", "developer"}:
            return messages
        return [*(self._system(row) if self._has_system else system_messages(row)), *messages]

    def _system(self, row: Row) -> list[Any]:
        if self._system_text is not None:
            rendered = self._system_text.render(row)
            return [{"role": "system", "content": rendered}] if rendered.strip() else []
        column = self.config.system_column
        own = row.get(column) if column is not None else None
        text = as_text(own) if own else self.config.system_prompt
        return [{"role": "system", "content": text}] if text else []


def _messages_of(question: str, answer: str) -> list[Any]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _message_of(row: Row, template: CompiledTemplate | None, name: str) -> str:
    """The message of one side: by a template, a param of that name, or else in the column of that name."""
    text = row.get(name) if template is None else template.render(row)
    if type(text) is str and text and not text.isspace():
        return text
    if template is not None:
        raise RowProblem(f"the text of `{name}` is empty")
    if name not in row:
        raise no_column(name, row)
    if text is None or isinstance(text, str):
        raise RowProblem(f"column {name!r} is empty")
    return as_text(text)


def _message(item: Any) -> Any:
    """A message; `from` and `value` become `role` and `content`."""
    if not isinstance(item, Mapping) or "role" in item or "from" not in item:
        return item
    rest = {key: value for key, value in item.items() if key not in {"from", "value"}}
    return {"role": _SPEAKERS.get(item["from"], item["from"]), "content": item.get("value"), **rest}
