"""All prefixes of a conversation from a few renderings, if the template reads the messages in turn.

A template writes while it reads: what it wrote before it reached a message doesn't depend on that message or a later one. If it
reads the messages once, in one loop, and carries nothing from one round to the next, then a conversation that ends earlier is
rendered as the same text up to there, and the text that follows the loop. A template may also look at the next message, or
ask whether there is one: then another rendering, in which each message seems to be the last, gives the text of each as the last.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from evsys.errors import DataError
from evsys_runtime.rendering.template_sandbox import environment

if TYPE_CHECKING:
    from types import FrameType

    from evsys_runtime.rendering.templates import ChatTemplate

__all__ = ["Growth", "Prefix", "grow"]

_STATEFUL = ("namespace", "cycler", "joiner")
"""Globals of templates that carry a value from one round of a loop to the next, and out of it."""


class Prefix(NamedTuple):
    """The first `cut` characters of a text, then `rest`: a prefix of a long text that needs no copy of it."""

    base: str
    cut: int
    rest: str = ""

    def text(self, start: int = 0) -> str:
        """The text from the character `start` on, which is at most `cut`."""
        return self.base[start : self.cut] + self.rest


@attrs.frozen(kw_only=True)
class Growth:
    """A conversation's text, and how each of its messages is written.

    Args:
        text: the conversation without a generation prompt.
        starts: characters before each message; the last entry is the end of the last message.
        last: each message's text where the conversation ends with it; empty if that is its text in any case.
        tails: what follows the messages without a generation prompt, and with one.
    """

    text: str
    starts: Sequence[int]
    last: Sequence[str]
    tails: tuple[str, str]

    def prefix(self, messages: int, *, prompt: bool = False) -> Prefix:
        """The text of the first messages alone, with a generation prompt if asked for."""
        start, end = self.starts[messages - 1], self.starts[messages]
        if self.last and self.last[messages - 1] != self.text[start:end]:
            return Prefix(self.text, start, self.last[messages - 1] + self.tails[prompt])
        return Prefix(self.text, end, self.tails[prompt])


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
    if len(messages) < 2 or not _reads_in_turn(template.source):
        return None
    whole = _read_growth(template, messages, tools)
    prompt = _read_growth(template, messages[:-1], tools, prompt=True)
    if whole is None or prompt is None:
        return None
    ahead = whole.ahead or prompt.ahead
    if whole.written[: len(prompt.written) - ahead] != prompt.written[: len(prompt.written) - ahead]:
        return None
    last: Sequence[str] = ()
    if ahead:
        whole_last = _read_growth(template, messages, tools, each_last=True)
        prompt_last = _read_growth(template, messages[:-1], tools, prompt=True, each_last=True)
        if whole_last is None or prompt_last is None:
            return None
        if whole_last.written[:-1] != prompt_last.written:
            return None
        last = whole_last.written[1:]
    return Growth(
        text="".join((*whole.written, whole.tail)),
        starts=list(accumulate(map(len, whole.written))),
        last=last,
        tails=(whole.tail, prompt.tail),
    )


@attrs.frozen(kw_only=True)
class _Reading:
    """The template's output before the first message, for each, and after them, and whether it looked ahead."""

    written: Sequence[str]
    tail: str
    ahead: bool


def _read_growth(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    prompt: bool = False,
    each_last: bool = False,
) -> _Reading | None:
    """None if the template read the messages in another way than in turn."""
    watched = _Watched(messages, each_last=each_last)
    try:
        text = template.render(watched, tools=tools, add_generation_prompt=prompt, written=watched.note)
    except DataError:
        return None  # raised again where the conversation is rendered without being watched
    if not watched.in_turn or len(watched.starts) != len(messages) + 1:
        return None
    written = [text[start:end] for start, end in pairwise((0, *watched.starts))]
    return _Reading(written=written, tail=text[watched.starts[-1] :], ahead=watched.ahead)


class _Watched(Sequence[Mapping[str, Any]]):
    """Messages that notice in which order they are read.

    Attributes:
        written: characters that the template wrote so far.
        starts: `written` as each message was reached, and as the end was.
        in_turn: False once more was learned of the messages than those before and the next one.
        ahead: True once something was learned of the next one.
    """

    def __init__(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        each_last: bool = False,
        first: int = 0,
        parent: _Watched | None = None,
    ) -> None:
        self._messages = messages
        self._each_last = each_last
        self._first = first
        self._seen = parent or self
        self.written = 0
        self.starts: list[int] = []
        self.in_turn = True
        self.ahead = False

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
        seen = self._seen
        if isinstance(place, slice):
            if place.stop is None and place.step is None and (place.start or 0) >= 0:
                first = self._first + (place.start or 0)
                return _Watched(self._messages, each_last=self._each_last, first=first, parent=seen)
            seen.in_turn = False
        elif place >= 0 and self._first + place == len(seen.starts) and self._in_loop():
            return self.peek(None) or self._messages[len(self._messages) :][0]  # as a list: IndexError
        elif not (self._first + place == place == 0 or self._behind(place)):
            seen.in_turn = False
        return self._messages[self._first :][place]

    def peek(self, missing: Any) -> Any:
        """The message after the one that the loop has reached, or `missing`."""
        seen = self._seen
        seen.ahead = True
        if not self._in_loop():
            seen.in_turn = False
        following = self._messages[len(seen.starts) :]
        return following[0] if following and not self._each_last else missing

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
        """True for a message that the loop has reached, while it hasn't ended."""
        return place >= 0 and self._first + place < len(self._seen.starts) and self._in_loop()

    def _in_loop(self) -> bool:
        return 0 < len(self._seen.starts) <= len(self._messages)

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
def _reads_in_turn(source: str) -> bool:
    """True if nothing but the messages can change between two rounds of a loop of the template, and loops write at once."""
    from jinja2 import nodes

    tree = environment().parse(source)
    return not (
        any(name.name in _STATEFUL for name in tree.find_all(nodes.Name))
        or any(read.attr == "changed" for read in tree.find_all(nodes.Getattr))
        or any(loop.else_ or loop.recursive for loop in tree.find_all(nodes.For))
        or any(
            block.find(nodes.For)
            for block in tree.find_all((nodes.AssignBlock, nodes.FilterBlock, nodes.CallBlock))
        )
    )
