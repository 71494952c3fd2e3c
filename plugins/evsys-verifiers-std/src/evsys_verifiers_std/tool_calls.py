"""Tool calls as data: what is expected, what was made, and whether the two agree."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evsys_runtime.data.answers import read_tool_calls, split_reasoning

if TYPE_CHECKING:
    from evsys.types import Rollout, ToolCall

__all__ = ["Call", "calls_in_text", "calls_of_rollout", "expected_calls", "matches"]


class Call(NamedTuple):
    """A call; `arguments` is a mapping, or the model's text if that wasn't JSON."""

    name: str
    arguments: Any


def expected_calls(expected: Any) -> list[Call]:
    """The calls that a task expects: one `{name, arguments}` or a list of them.

    Raises:
        ValueError: it isn't that.
    """
    if expected is None:
        raise ValueError("`expected` is missing; give a list of {name, arguments}, empty for no call at all")
    calls = []
    for value in expected if isinstance(expected, list | tuple) else [expected]:
        call = _call(value)
        if call is None:
            raise ValueError(f"`expected` holds {value!r}, which is not {{name, arguments}}")
        calls.append(call)
    return calls


def calls_of_rollout(rollout: Rollout) -> list[Call]:
    """All calls that the model made, in their order, over all turns."""
    said = [turn.message for turn in rollout.turns] or list(rollout.messages)
    return [_call_of(call) for message in said if message.role == "assistant" for call in message.tool_calls]


def calls_in_text(text: str) -> list[Call]:
    """The calls written in an answer's text, outside its reasoning: tagged, in a code fence, or as bare JSON."""
    _, content = split_reasoning(text)
    calls, _ = read_tool_calls(content, untagged=True)
    return [_call_of(call) for call in calls]


def matches(
    made: Sequence[Call], wanted: Sequence[Call], *, ordered: bool, arguments: str, allow_extra: bool
) -> bool:
    """True when each wanted call was made, in order where asked, and no other was unless extra ones are allowed."""
    if not allow_extra and len(made) != len(wanted):
        return False
    if not ordered:
        return _has_assignment([[_same(m, w, arguments) for m in made] for w in wanted])
    remaining = iter(made)
    return all(any(_same(m, w, arguments) for m in remaining) for w in wanted)


def _has_assignment(fits: Sequence[Sequence[bool]]) -> bool:
    """True when each row can have a column of its own (a bipartite matching by augmenting paths)."""
    owner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in tried:
                tried.add(column)
                if column not in owner or place(owner[column], tried):
                    owner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(fits)))


def _same(made: Call, wanted: Call, arguments: str) -> bool:
    if made.name != wanted.name:
        return False
    if arguments == "ignore":
        return True
    if (
        arguments == "exact"
        or not isinstance(made.arguments, Mapping)
        or not isinstance(wanted.arguments, Mapping)
    ):
        return _canonical(made.arguments) == _canonical(wanted.arguments)
    return all(
        key in made.arguments and _canonical(made.arguments[key]) == _canonical(value)
        for key, value in wanted.arguments.items()
    )


def _canonical(value: Any) -> str:
    """JSON text in which equal JSON values are equal: keys sorted, 2.0 written as 2, true kept apart from 1."""
    return json.dumps(_whole(value), sort_keys=True, ensure_ascii=False, default=str)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value


def _call(value: Any) -> Call | None:
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("function"), Mapping):
        value = value["function"]
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return None
    return Call(name, _arguments(value.get("arguments", {})))


def _call_of(call: ToolCall) -> Call:
    return Call(call.name, _arguments(call.arguments))


def _arguments(arguments: Any) -> Any:
    """Arguments written as JSON text are what that text says."""
    if isinstance(arguments, str):
        parsed = _json(arguments)
        return arguments if parsed is None else parsed
    return arguments


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
