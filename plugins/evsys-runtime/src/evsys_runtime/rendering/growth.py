"""All prefixes of a conversation from one rendering, if the template only appends.

A template writes while it reads: what it wrote before it reached a message doesn't depend on that message or a later one. If it
reads the messages once, in one loop, never looks ahead, and carries nothing out of the loop, then a conversation that ends
earlier is rendered as the same text up to there, and the text that follows the loop.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import DataError
from evsys_runtime.rendering.template_sandbox import environment

if TYPE_CHECKING:
    from types import FrameType

    from evsys_runtime.rendering.templates import ChatTemplate

__all__ = ["Growth", "grow"]

_STATEFUL = ("namespace", "cycler", "joiner")
"""Globals of templates that carry a value from one round of a loop to the next, and out of it."""


@attrs.frozen(kw_only=True)
class Growth:
    """A conversation's text, and where each of its messages begins.

    Args:
        text: the conversation without a generation prompt.
        starts: characters before each message; the last entry is the end of the last message.
        prompt: what follows the messages if a generation prompt is asked for.
    """

    text: str
    starts: Sequence[int]
    prompt: str

    @property
    def tail(self) -> str:
        """What follows the messages without a generation prompt."""
        return self.text[self.starts[-1] :]


def grow(
    template: ChatTemplate, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> Growth | None:
    """Render a conversation so that all its prefixes of one message or more are known.

    Args:
        template: the chat template.
        messages: what the template reads; the last is an assistant's.
        tools: tool schemas.

    Returns:
        None if the template may render a prefix in another way.
    """
    if len(messages) < 2 or not _appends(template.source):
        return None
    whole = _watched(template, messages, tools, add_generation_prompt=False)
    prompt = _watched(template, messages[:-1], tools, add_generation_prompt=True)
    if whole is None or prompt is None:
        return None
    (text, starts), (before, places) = whole, prompt
    if starts[:-1] != places or not text.startswith(before[: places[-1]]):
        return None
    return Growth(text=text, starts=starts, prompt=before[places[-1] :])


def _watched(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool,
) -> tuple[str, list[int]] | None:
    """The text and where each message starts; None where the template read the messages in another way than in turn."""
    watched = _Watched(messages)
    try:
        text = template.render(
            watched, tools=tools, add_generation_prompt=add_generation_prompt, written=watched.note
        )
    except DataError:
        return None  # raised again where the conversation is rendered without being watched
    if not watched.in_turn or len(watched.starts) != len(messages) + 1:
        return None
    return text, watched.starts


class _Watched(Sequence[Mapping[str, Any]]):
    """Messages that notice in which order they are read.

    Attributes:
        written: characters that the template wrote so far.
        starts: `written` as each message was reached, and as the end was.
        in_turn: False once a message was read before its turn, or more was learned of the messages than those before.
    """

    def __init__(
        self, messages: Sequence[Mapping[str, Any]], first: int = 0, parent: _Watched | None = None
    ) -> None:
        self._messages = messages
        self._first = first
        self._seen = parent or self
        self.written = 0
        self.starts: list[int] = []
        self.in_turn = True

    def note(self, written: int) -> None:
        """Set how many characters the template wrote so far."""
        self.written = written

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        seen = self._seen
        if seen.starts:
            seen.in_turn = False
        seen.starts.extend([seen.written] * self._first)
        for message in self._messages[self._first :]:
            seen.reach(inspect.currentframe())
            yield message
        seen.reach(inspect.currentframe())

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            if place.stop is None and place.step is None and (place.start or 0) >= 0:
                return _Watched(self._messages, self._first + (place.start or 0), self._seen)
            self._seen.in_turn = False
        elif not (self._first + place == place == 0 or self._behind(place)):
            self._seen.in_turn = False
        return self._messages[self._first :][place]

    def __bool__(self) -> bool:
        return self._out_of_turn(len(self) > 0) if self._first else bool(self._messages)

    def __len__(self) -> int:
        return self._out_of_turn(len(self._messages[self._first :]))

    def __contains__(self, value: object) -> bool:
        return self._out_of_turn(value in self._messages)

    def __eq__(self, other: object) -> bool:
        return self._out_of_turn(other == list(self._messages))

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __repr__(self) -> str:
        return self._out_of_turn(repr(list(self._messages[self._first :])))

    def _out_of_turn[T](self, answer: T) -> T:
        self._seen.in_turn = False
        return answer

    def _behind(self, place: int) -> bool:
        """True for a message that the loop has reached and not left."""
        reached = len(self._seen.starts)
        return 0 <= self._first + place < reached <= len(self._messages) and place >= 0

    def reach(self, own: FrameType | None) -> None:
        """Note where the next message begins; only a loop in the template's own text, which writes at once, reads in turn.

        Args:
            own: the frame of the iterator that asks.
        """
        from jinja2.runtime import LoopContext

        reader = own.f_back if own else None
        if reader and reader.f_code is LoopContext.__next__.__code__:
            reader = reader.f_back
        if not reader or (reader.f_code.co_filename, reader.f_code.co_name) != ("<template>", "root"):
            self.in_turn = False
        self.starts.append(self.written)


@functools.lru_cache(maxsize=32)
def _appends(source: str) -> bool:
    """True if nothing but the messages can change between two rounds of a loop of the template, and loops write at once."""
    from jinja2 import nodes

    tree = environment().parse(source)
    return not (
        any(name.name in _STATEFUL for name in tree.find_all(nodes.Name))
        or any(loop.else_ or loop.recursive for loop in tree.find_all(nodes.For))
        or any(
            block.find(nodes.For)
            for block in tree.find_all((nodes.AssignBlock, nodes.FilterBlock, nodes.CallBlock))
        )
    )
