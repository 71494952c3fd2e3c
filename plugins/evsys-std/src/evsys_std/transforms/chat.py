"""`jsonl_to_chat`: columns to messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime.data.parse import RowProblem
from evsys_std.transforms.columns import Row, as_text, no_column

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
    """Makes `messages` of a row: of a column that holds a conversation, or of one for the user and one for the assistant.

    Without parameters it takes the first that a row has: `messages`, `conversations`, then the pairs user/assistant,
    prompt/completion, prompt/response, question/answer, instruction/output (an `input` beside it is put below the
    instruction), instruction/response, input/output. All columns are kept, so later transforms can use them, and land
    in the row's metadata. Conversations written with `from` and `value` are understood.
    """

    name: ClassVar[str] = "jsonl_to_chat"
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `jsonl_to_chat`."""

        user_column: str | None = option(
            None,
            "column with what the user says",
            aliases=("user", "user_key", "prompt_column"),
        )
        assistant_column: str | None = option(
            None,
            "column with what the assistant answers",
            aliases=("assistant", "assistant_key", "completion_column"),
        )
        messages_column: str | None = option(
            None, "column with a list of messages", aliases=("messages_key",)
        )
        system_prompt: str | None = option(
            None, "system message put first, unless the row has one of its own", aliases=("system",)
        )
        system_column: str | None = option(None, "column with the row's own system message")
        missing: Literal["error", "drop"] = option(
            "error", "a row without what is needed: fail, or leave it out and count it"
        )

    def __init__(self, **fields: Any) -> None:
        self.config = config = self.Config(**fields)
        self.dropped: Counter[str] = Counter()
        self._has_system = config.system_prompt is not None or config.system_column is not None
        if config.messages_column is not None and (config.user_column or config.assistant_column):
            raise ValueError("give either `messages_column` or `user_column` and `assistant_column`")
        if (config.user_column is None) != (config.assistant_column is None):
            lacking = "user_column" if config.user_column is None else "assistant_column"
            raise ValueError(f"`{lacking}` is needed beside the other one")

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
        if config.user_column is not None and config.assistant_column is not None:
            return self._pair(row, config.user_column, config.assistant_column)
        if config.messages_column is not None:
            return self._conversation(row, config.messages_column)
        for column in _MESSAGE_COLUMNS:
            if row.get(column):
                return self._conversation(row, column)
        for user, assistant in _PAIRS:
            if user in row and assistant in row:
                return self._pair(row, user, assistant, below="input" if user == "instruction" else None)
        found = f"no messages and no known pair of columns in {', '.join(map(str, row))}"
        raise RowProblem(
            "no known columns",
            f"{found}; name them with `user_column` and `assistant_column`"
            if row
            else "the row has no columns",
        )

    def _pair(self, row: Row, user: str, assistant: str, below: str | None = None) -> list[Any]:
        question, answer = row.get(user), row.get(assistant)
        if type(question) is not str or not question or question.isspace():
            question = _said(row, user)
        if type(answer) is not str or not answer or answer.isspace():
            answer = _said(row, assistant)
        if below is not None and row.get(below):
            question = f"{question}\n\n{as_text(row[below])}"
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        return [*self._system(row), *messages] if self._has_system else messages

    def _conversation(self, row: Row, column: str) -> list[Any]:
        said = row.get(column)
        if not isinstance(said, list | tuple) or not said:
            what = "is empty" if said in ([], ()) else "holds no list of messages"
            raise no_column(column, row) if said is None else RowProblem(f"column {column!r} {what}")
        messages = [_message(item) for item in said]
        first = messages[0]
        if isinstance(first, Mapping) and first.get("role") in {"system", "developer"}:
            return messages
        return [*self._system(row), *messages] if self._has_system else messages

    def _system(self, row: Row) -> list[Any]:
        column = self.config.system_column
        own = row.get(column) if column is not None else None
        text = as_text(own) if own else self.config.system_prompt
        return [{"role": "system", "content": text}] if text else []


def _said(row: Row, column: str) -> str:
    """What a column says that isn't simply a text."""
    text = row.get(column)
    if column not in row:
        raise no_column(column, row)
    if text is None or isinstance(text, str):
        raise RowProblem(f"column {column!r} is empty")
    return as_text(text)


def _message(item: Any) -> Any:
    """A message; `from` and `value` become `role` and `content`."""
    if not isinstance(item, Mapping) or "role" in item or "from" not in item:
        return item
    rest = {key: value for key, value in item.items() if key not in {"from", "value"}}
    return {"role": _SPEAKERS.get(item["from"], item["from"]), "content": item.get("value"), **rest}
