"""A model's answer as text, read into reasoning, tool calls and content.

Rendering, serving, inference clients, harnesses, training rows and verifiers all read answers here, so that one text means the
same in each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from evsys.types import Message, ToolCall

__all__ = ["THINK", "answer_text", "parse_answer", "read_tool_calls", "split_reasoning"]

type Tags = tuple[str, str]

THINK: Tags = ("<think>", "</think>")
"""The tags around reasoning, unless a renderer says otherwise."""

MOST_TRIES = 100
"""Places in a text at which a tool call is looked for, so that reading takes linear time."""

_TAGGED = re.compile(r"<tool_call>(.*?)(?P<end></tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)
_FENCE = re.compile(r"```[\w-]*\s(.*?)(?:```|\Z)", re.DOTALL)
_DECODER = json.JSONDecoder()


def parse_answer(
    text: str, *, tags: Tags | None = THINK, opened: bool = False, tool_calls: bool = True
) -> Message:
    """The assistant message that `text` is.

    Args:
        text: the sampled text, end token removed.
        tags: the tags around reasoning; None leaves all of it in the content.
        opened: the prompt has opened the reasoning, so the text starts inside it.
        tool_calls: read `<tool_call>{json}</tool_call>`; a malformed call stays in the content as written. A call inside
            reasoning is not a call.
    """
    reasoning = None
    if tags is not None:
        reasoning, text = split_reasoning(text, tags=tags, opened=opened)
    calls: tuple[ToolCall, ...] = ()
    if tool_calls:
        calls, text = read_tool_calls(text)
    return Message(role="assistant", content=text, reasoning=reasoning, tool_calls=calls)


def split_reasoning(text: str, *, tags: Tags = THINK, opened: bool = False) -> tuple[str | None, str]:
    """Reasoning and content of an answer.

    Reasoning is each block that opens at the start of the text or of a line, and, if the prompt opened it, the text up to the first
    closing tag. A block that never closes is reasoning to its end: an answer cut off in its thoughts has no content.

    Returns:
        The blocks, separated by an empty line, or None if all are empty; and the text without them, unchanged if there are none.
    """
    opening, closing = tags
    if not opened and opening not in text and closing not in text:
        return None, text
    thoughts: list[str] = []
    kept: list[str] = []
    rest = text
    if not rest.lstrip().startswith(opening) and (opened or _closes_first(rest, tags)):
        thought, closed, rest = rest.partition(closing)
        thoughts.append(thought)
        rest = rest.lstrip("\n") if closed else ""
    starts_line = re.compile(rf"(?:\A\s*|\n[^\S\n]*){re.escape(opening)}")
    while (found := starts_line.search(rest)) is not None:
        thought, closed, after = rest[found.end() :].partition(closing)
        thoughts.append(thought)
        kept.append(rest[: found.start()])
        rest = after.lstrip("\n") if closed else ""
    if not thoughts:
        return None, text
    content = "\n\n".join(part for part in (*kept, rest) if part)
    return "\n\n".join(part for thought in thoughts if (part := thought.strip("\n"))) or None, content


def _closes_first(text: str, tags: Tags) -> bool:
    """True if a closing tag that ends or begins a line comes before any opening one: a service has cut off the opening tag."""
    opening, closing = tags
    place = text.find(closing)
    if place < 0 or opening in text[:place]:
        return False
    after = text[place + len(closing) :].lstrip(" \t")
    return not after or after.startswith("\n") or text[:place].rstrip(" \t").endswith("\n")


def answer_text(message: Message, tags: Tags = THINK) -> str:
    """The text of an assistant message with its reasoning in tags, as a model without a place for reasoning writes it.

    Reasoning without an answer stays open: the answer was cut off in it.
    """
    if message.reasoning is None:
        return message.content
    cut_off = not message.content and not message.tool_calls
    return f"{tags[0]}\n{message.reasoning}\n" + ("" if cut_off else f"{tags[1]}\n\n{message.content}")


def read_tool_calls(text: str, *, untagged: bool = False) -> tuple[tuple[ToolCall, ...], str]:
    """The well-formed calls of a text in order, and the text without them.

    A call is a JSON object with a `name` and `arguments` (or `parameters`), or a list of them, in `<tool_call>` tags; the closing tag
    may be missing, and the JSON may be fenced.

    Args:
        text: content, without reasoning.
        untagged: if there is no tagged call, read JSON in code fences, else JSON anywhere in the text. An object amid other text needs
            `arguments` to be a call.
    """
    calls: list[ToolCall] = []
    kept: list[str] = []
    end = 0
    for match in _TAGGED.finditer(text):
        found, rest = _leading_calls(match[1], whole=bool(match["end"]))
        if found:
            calls += found
            kept.append(text[end : match.start()])
            end = match.end() - len(rest) if not match["end"] else match.end()
    if not calls and untagged:
        return _strip_tags(text)
    if not calls:
        return (), text
    return tuple(calls), "".join([*kept, text[end:]]).strip()


def _leading_calls(body: str, *, whole: bool) -> tuple[list[ToolCall], str]:
    """The calls that a tagged body begins with, and what follows them; none if `whole` and something does follow."""
    fenced = _FENCE.fullmatch(body.strip())
    source = fenced[1].strip() if fenced else body.lstrip()
    value, after = _leading_json(source)
    calls = _calls(value)
    if not calls or (whole and after.strip()):
        return [], ""
    return calls, "" if fenced else after


def _strip_tags(text: str) -> tuple[tuple[ToolCall, ...], str]:
    for match in _FENCE.finditer(text):
        value, after = _leading_json(match[1].strip())
        if (calls := _calls(value)) and not after.strip():
            return tuple(calls), (text[: match.start()] + text[match.end() :]).strip()
    value, after = _leading_json(text.strip())
    if (calls := _calls(value)) and not after:
        return tuple(calls), ""
    found: list[ToolCall] = []
    kept: list[str] = []
    last = 0
    for start, end, calls in _embedded_calls(text):
        found += calls
        kept.append(text[last:start])
        last = end
    return (tuple(found), "".join([*kept, text[last:]]).strip()) if found else ((), text)


def _embedded_calls(text: str) -> Iterator[tuple[int, int, list[ToolCall]]]:
    """Objects and lists of objects with `arguments` in a text: the start and end of each, and its calls."""
    place = 0
    for _ in range(MOST_TRIES):
        start = min((at for mark in "{[" if (at := text.find(mark, place)) >= 0), default=-1)
        if start < 0:
            return
        value, end = _json_at(text, start)
        values = value if isinstance(value, list) else [value]
        calls = _calls(value) if all(isinstance(one, dict) and _explicit(one) for one in values) else []
        place = end if calls else start + 1
        if calls:
            yield start, end, calls


def _explicit(value: Mapping[str, Any]) -> bool:
    inner = value.get("function")
    value = inner if isinstance(inner, dict) else value
    return "arguments" in value or "parameters" in value


def _leading_json(text: str) -> tuple[Any, str]:
    """The JSON value that a text begins with, and the text after it; None if it does not begin with one."""
    value, end = _json_at(text, 0)
    return value, text[end:]


def _json_at(text: str, start: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start


def _calls(value: Any) -> list[ToolCall]:
    """A call or a list of calls; empty if any of them is malformed."""
    calls = [_call(one) for one in (value if isinstance(value, list) else [value])]
    return [call for call in calls if call is not None] if None not in calls else []


def _call(value: Any) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    named = inner if isinstance(inner, dict) else value
    name = named.get("name")
    arguments: Any = named.get("arguments", named.get("parameters", {}))
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping | str):
        return None
    identity = value.get("id")
    return ToolCall(name=name, arguments=arguments, id=identity if isinstance(identity, str) else None)
