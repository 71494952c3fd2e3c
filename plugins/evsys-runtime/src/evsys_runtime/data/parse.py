"""Rows to typed values, once, after the last transform: `chat`, `pair`, `prompt` or `task`."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import attrs

from evsys.errors import DataError, PluginContractError
from evsys.types import ChatMessagesRow, HarborTask, Message, PromptExample, VerifierSpec
from evsys_runtime.data import messages as msg
from evsys_runtime.data.json_rows import is_row, row_type_name
from evsys_runtime.data.messages import RowProblem
from evsys_runtime.data.problem_counter import ProblemCounter
from evsys_runtime.data.readers import OnBadRow

__all__ = ["SHAPES", "ParseReport", "RowProblem", "Shape", "parse_row", "parse_rows"]

Shape = Literal["chat", "pair", "prompt", "task"]
_MOST_KINDS = 10
_MOST_ROWS = 10_000
"""Bad rows after which no one looks for more: a file of the wrong kind has nothing else."""

_VERIFIER_KEYS = ("name", "expected", "params")


@attrs.define(kw_only=True)
class ParseReport:
    """The report of typing: how many rows can be used, and the problems of the others by their kind.

    `empty_answers` of the rows teach an answer without text, thoughts or tool calls: to say nothing.
    `null_arguments` of them call tools with null for an argument, or show tools a parameter of which is null.
    """

    rows: int = 0
    empty_answers: int = 0
    null_arguments: int = 0
    problems: ProblemCounter = attrs.field(factory=lambda: ProblemCounter(most_kinds=_MOST_KINDS))

    @property
    def skipped(self) -> Counter[str]:
        """How many rows can't be used, by the kind of their problem."""
        return self.problems.counts


def parse_row(row: Mapping[str, Any], shape: Shape, index: int) -> Any:
    """One row as `ChatMessagesRow`, `PromptExample` or `HarborTask`.

    Raises:
        RowProblem: says what is missing or wrong.
    """
    return SHAPES[shape](row, index)


def parse_rows(
    rows: Iterable[Mapping[str, Any]],
    shape: Shape,
    *,
    on_bad_row: OnBadRow = "error",
    report: ParseReport | None = None,
    place: Callable[[], str | None] = lambda: None,
    most_problems: int | None = _MOST_ROWS,
) -> Iterator[Any]:
    """Stream typed rows.

    Args:
        rows: what the last transform yields.
        shape: `chat`, `pair`, `prompt` or `task`.
        on_bad_row: `error` fails with all problems found, `skip` counts.
        report: filled while parsing.
        place: where the current row came from, `file:line`, or None where no longer known.
        most_problems: how many bad rows end the search of `error`, as ten kinds of problems do; None reads on to
            the end.

    Raises:
        DataError: rows that lack what the shape needs; each names its index, its line where known, and what is missing.
        PluginContractError: there is no such shape.
    """
    if shape not in SHAPES:
        raise PluginContractError(
            f"no shape of rows is called {shape!r}", hint=f"known are {', '.join(SHAPES)}"
        )
    make = SHAPES[shape]
    report = report if report is not None else ParseReport()
    seen = kept = empty = null = (
        0  # counting in the report itself would cost more than all the rest of this loop
    )
    try:
        for row in rows:
            try:
                typed = make(row, kept)
            except RowProblem as exc:
                where = f"row {seen}" + (f" ({found})" if (found := place()) else "")
                report.problems.add(exc.kind, where, str(exc))
                if on_bad_row == "error" and _enough(report, most_problems):
                    break
            else:
                kept += 1
                if shape in {"chat", "pair"}:
                    empty += _answers_nothing(typed.messages[-1])
                    null += _has_null_arguments(typed)
                yield typed
            seen += 1
    except DataError:
        if on_bad_row == "error" and len(report.problems):
            raise _problems(report, shape) from None
        raise
    finally:
        report.rows, report.empty_answers, report.null_arguments = kept, empty, null
    if len(report.problems) and (on_bad_row == "error" or not kept):
        raise _problems(report, shape)


def _answers_nothing(last: Message) -> bool:
    return (
        last.role == "assistant"
        and (not last.content or last.content.isspace())
        and not (last.reasoning or last.tool_calls or last.weight == 0)
    )


def _has_null_arguments(row: ChatMessagesRow) -> bool:
    """Libraries of tables give all rows the same keys, and null to those that a row never had."""
    calls = [call.arguments for message in row.messages if message.tool_calls for call in message.tool_calls]
    shown = [schema.get("function", schema) for schema in row.tools]
    parameters = [found.get("parameters") for found in shown if is_row(found)]
    properties = [found.get("properties") for found in parameters if is_row(found)]
    return any(None in found.values() for found in (*calls, *properties) if is_row(found))


def _enough(report: ParseReport, most_problems: int | None) -> bool:
    many = most_problems is not None and len(report.problems) >= most_problems
    return many or (most_problems is not None and len(report.skipped) >= _MOST_KINDS)


def _problems(report: ParseReport, shape: Shape) -> DataError:
    count = len(report.problems)
    rows = f"{count:,} rows" if count > 1 else "a row"
    text = "\n  ".join([f"{rows} can't be used as {shape!r}:", *report.problems.lines()])
    return DataError(text, hint=_HINTS[shape], counts=dict(report.skipped))


_HINTS: dict[Shape, str] = {
    "chat": "a row needs `messages`, `prompt` and `completion`, or `chosen` and `rejected`; `jsonl_to_chat` makes them",
    "pair": "a row needs `chosen` and `rejected`, or `messages` and `rejected`",
    "prompt": "a row needs `prompt` or `messages`",
    "task": "a row needs `task_id`, `instruction` and `verifier {name, expected, params}`; `jsonl_to_tasks` makes them",
}


# --- chat -------------------------------------------------------------------------------------------------------


def _chat(row: Mapping[str, Any], index: int) -> ChatMessagesRow:
    rejected: tuple[Message, ...] | None = None
    rest = dict(row)
    given = rest.pop("messages", None)
    if given is not None:
        said = msg.messages(given, "messages")
        if "rejected" in rest and rest["rejected"] is not None:
            rejected = _rejected_messages(
                said, msg.conversation(rest.pop("rejected"), "rejected", "assistant")
            )
    elif rest.get("chosen") is not None and rest.get("rejected") is not None:
        said, rejected = _pair(rest)
    elif rest.get("prompt") is not None and rest.get("completion") is not None:
        prompt = msg.conversation(rest.pop("prompt"), "prompt", "user")
        said = prompt + msg.conversation(rest.pop("completion"), "completion", "assistant")
    else:
        raise _missing(
            row, "messages", "neither `messages` nor `prompt` with `completion` nor `chosen` with `rejected`"
        )
    schemas = msg.tools(rest.pop("tools")) if "tools" in rest else ()
    row_id = _row_id(rest, index)
    return msg.chat_row(said, _metadata(rest), row_id, schemas, rejected)


def _rejected_messages(chosen: tuple[Message, ...], rejected: tuple[Message, ...]) -> tuple[Message, ...]:
    """The rejected side of `messages`: where it is an answer alone, it answers what the chosen one does."""
    if rejected[0].role != "assistant" or chosen[0].role == "assistant":
        return rejected
    asked = max(place for place, message in enumerate(chosen) if message.role != "assistant")
    return chosen[: asked + 1] + rejected


def _preference(row: Mapping[str, Any], index: int) -> ChatMessagesRow:
    made = _chat(row, index)
    if made.rejected is None:
        raise _missing(row, "rejected", "no `rejected` answer in addition to the chosen one")
    return made


def _pair(rest: dict[str, Any]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """A preference pair; a prompt alongside it is put in front of each side that doesn't begin with it already."""
    chosen = msg.conversation(rest.pop("chosen"), "chosen", "assistant")
    rejected = msg.conversation(rest.pop("rejected"), "rejected", "assistant")
    given = rest.pop("prompt", None)
    prompt = () if given is None else msg.conversation(given, "prompt", "user")
    sides = [side if side[: len(prompt)] == prompt else prompt + side for side in (chosen, rejected)]
    return sides[0], sides[1]


# --- prompt -----------------------------------------------------------------------------------------------------


def _prompt(row: Mapping[str, Any], index: int) -> PromptExample:
    rest = dict(row)
    demonstration: tuple[Message, ...] = ()
    if rest.get("prompt") is not None:
        prompt = msg.conversation(rest.pop("prompt"), "prompt", "user")
        for column in ("demonstration", "completion"):
            if not demonstration and rest.get(column) is not None:
                demonstration = msg.conversation(rest.pop(column), column, "assistant")
    elif rest.get("messages") is not None:
        prompt, demonstration = _split_answer(msg.messages(rest.pop("messages"), "messages"))
    else:
        raise _missing(row, "prompt", "neither `prompt` nor `messages`")
    schemas = msg.tools(rest.pop("tools")) if "tools" in rest else ()
    row_id = _row_id(rest, index)
    return PromptExample(
        prompt=prompt, demonstration=demonstration, tools=schemas, metadata=_metadata(rest), row_id=row_id
    )


def _split_answer(said: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """A conversation cut where the last answer begins: what follows the last user message is the demonstration."""
    cut = next((at + 1 for at in range(len(said) - 1, -1, -1) if said[at].role == "user"), None)
    if cut is None:
        raise RowProblem("no user message", "'messages' has no message of the user, so there is no prompt")
    return said[:cut], said[cut:]


# --- task -------------------------------------------------------------------------------------------------------


def _task(row: Mapping[str, Any], _index: int) -> HarborTask:
    rest = dict(row)
    path = rest.pop("path", None)
    if path is not None and not isinstance(path, str):
        raise RowProblem(
            "'path' is not a string", f"'path' is {row_type_name(path)}, not the folder of a task"
        )
    task_id = rest.pop("task_id", None)
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        task_id = str(task_id)
    if not isinstance(task_id, str) or not task_id.strip():
        raise (
            _missing(row, "task_id", "no `task_id`")
            if task_id is None
            else RowProblem(f"`task_id` is {task_id!r}")
        )
    try:
        return HarborTask(
            task_id=task_id,
            instruction=_instruction(rest, path),
            verifier=_verifier(rest, path),
            tools=msg.tools(rest.pop("tools")) if "tools" in rest else (),
            path=path,
            metadata=_metadata(rest, strict=True),
        )
    except RowProblem as exc:
        raise RowProblem(exc.kind, f"task {task_id!r}: {exc}") from exc


def _instruction(rest: dict[str, Any], path: str | None) -> str | tuple[Message, ...]:
    value = rest.pop("instruction", None)
    if value is None and rest.get("messages") is not None:
        return msg.messages(rest.pop("messages"), "messages")
    if isinstance(value, str) and (value.strip() or path):
        return value
    if value is None and path:
        return ""
    if value is None:
        raise _missing(rest, "instruction", "no `instruction`")
    if isinstance(value, str):
        raise RowProblem("`instruction` is empty")
    return msg.messages(value, "instruction")


def _verifier(rest: dict[str, Any], path: str | None) -> VerifierSpec | None:
    value = rest.pop("verifier", None)
    if value is None:
        if path:  # a folder brings its own tests
            return None
        raise _missing(rest, "verifier", "no `verifier`")
    if not is_row(value):
        raise RowProblem(
            "`verifier` is not an object",
            f"`verifier` is {row_type_name(value)}, not {{name, expected, params}}",
        )
    for key in value:
        if key not in _VERIFIER_KEYS:
            close = difflib.get_close_matches(str(key), _VERIFIER_KEYS, 1)
            meant = f"; did you mean `{close[0]}`?" if close else "; settings of a verifier go under `params`"
            raise RowProblem("unknown key in `verifier`", f"`verifier` has an unknown key {key!r}{meant}")
    name, params = value.get("name"), value.get("params")
    if not isinstance(name, str) or not name:
        raise RowProblem("`verifier` has no name")
    if params is not None and not is_row(params):
        raise RowProblem(
            "`verifier.params` is not an object",
            f"`verifier.params` is {row_type_name(params)}, not an object",
        )
    return VerifierSpec(name=name, expected=value.get("expected"), params=params or {})


# --- shared -----------------------------------------------------------------------------------------------------


def _metadata(rest: dict[str, Any], *, strict: bool = False) -> Mapping[str, Any]:
    """All other columns, and what a `metadata` column holds, which wins where both name the same."""
    if "metadata" not in rest:
        return rest
    inner = rest.pop("metadata")
    if inner is None:
        return rest
    if is_row(inner):
        return {**rest, **inner}
    if strict:
        raise RowProblem(
            "`metadata` is not an object", f"`metadata` is {row_type_name(inner)}, not an object"
        )
    return {**rest, "metadata": inner}


def _row_id(rest: dict[str, Any], index: int) -> str:
    """The row's own `row_id`, else its number among the rows."""
    found = rest.pop("row_id") if "row_id" in rest else None
    return f"{index}" if found is None else str(found)


def _missing(row: Mapping[str, Any], wanted: str, message: str) -> RowProblem:
    columns = [str(column) for column in row]
    if wanted in columns:
        return RowProblem(f"`{wanted}` is null")
    close = difflib.get_close_matches(wanted, columns, 1)
    has = f"it has {', '.join(columns[:12])}" if columns else "it has nothing else"
    return RowProblem(
        message, f"{message}; {has}" + (f"; did you mean `{wanted}` by `{close[0]}`?" if close else "")
    )


SHAPES: Mapping[Shape, Callable[[Mapping[str, Any], int], Any]] = {
    "chat": _chat,
    "pair": _preference,
    "prompt": _prompt,
    "task": _task,
}
"""The parser of each shape."""
