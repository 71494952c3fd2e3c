"""Control tokens come from the chat template only: their texts in data are encoded as plain text.

Before a conversation is rendered, each control text in its data is masked by a character of the private use area that occurs
nowhere else. Templates handle that character like any other letter. After rendering, the control texts that remain are the
template's own, and the masks give the spans that the tokenizer must read as text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import DataError
from evsys.optional import declared
from evsys.types import Message, ToolCall

if TYPE_CHECKING:
    from evsys.protocols import Tokenizer

__all__ = ["NO_MASKS", "ControlTexts", "Masks", "Spans", "control_texts_of", "encode_rendered"]

type Spans = Sequence[tuple[int, int]]
"""Start and end of stretches of a text, in order and apart."""

_PRIVATE = range(0x10FFFD, 0x0FFFFF, -1)
"""Private use characters: no text means anything by them, and no filter of a template changes them."""


def control_texts_of(tokenizer: Tokenizer) -> ControlTexts | None:
    """The control tokens of a tokenizer; None for one that declares none, or can't keep them apart from text."""
    tokens = declared(tokenizer, "control_tokens")
    if not tokens or "plain" not in inspect.signature(tokenizer.encode).parameters:
        return None
    return ControlTexts(tokens)


class ControlTexts:
    """Finds the texts of control tokens, the longest one where several begin.

    Args:
        ids: token id of each text.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = ids
        self._pattern = re.compile("|".join(map(re.escape, sorted(ids, key=len, reverse=True))))
        self._heads = sorted({text[:2] for text in ids})  # most texts hold none of these, and `in` is fast

    def occurrences(self, text: str) -> Iterator[re.Match[str]]:
        """Each occurrence in `text`, from left to right."""
        if any(head in text for head in self._heads):
            yield from self._pattern.finditer(text)

    def replace(self, text: str, plain: Spans, names: Mapping[str, str]) -> str:
        """`text` with each control text as its name, but for those in the spans `plain`."""
        parts, end = [], 0
        for start, stop in (*plain, (len(text), len(text))):
            parts.append(self._pattern.sub(lambda match: names[match.group()], text[end:start]))
            parts.append(text[start:stop])
            end = stop
        return "".join(parts)

    def mask(self, values: Collection[object], reserved: str = "") -> Masks:
        """Masks for the control texts in `values`: messages, and any JSON value.

        Args:
            values: the data of one rendering.
            reserved: text whose characters are not used as masks: the template.

        Raises:
            DataError: the data use every private character.
        """
        found = {match.group() for text in _texts(values) for match in self.occurrences(text)}
        if not found:
            return NO_MASKS
        used = set(reserved).union(*_texts(values))
        free = (chr(code) for code in _PRIVATE if chr(code) not in used)
        try:
            chars = {text: next(free) for text in sorted(found)}
        except StopIteration:
            raise DataError("the conversation uses all private characters of Unicode") from None
        return Masks(chars=chars, controls=self)


@attrs.frozen(kw_only=True)
class Masks:
    """Characters that represent the control texts in the data of one rendering.

    Args:
        chars: the character of each text.
        controls: finds the texts.
    """

    chars: Mapping[str, str] = attrs.field(factory=dict)
    controls: ControlTexts | None = None

    def apply[T](self, value: T) -> T:
        """`value` with its control texts masked: messages, strings, and what mappings and sequences hold."""
        return value if self.controls is None else self._masked(value, self.controls)

    def _masked(self, value: Any, controls: ControlTexts) -> Any:
        match value:
            case str():
                return controls.replace(value, (), self.chars)
            case Message() | ToolCall():
                fields = attrs.asdict(value, recurse=False)
                role = {"role": value.role} if isinstance(value, Message) else {}
                return type(value)(**self._masked(fields, controls) | role)
            case Mapping():
                return {
                    self._masked(key, controls): self._masked(item, controls) for key, item in value.items()
                }
            case list() | tuple():
                return type(value)([self._masked(item, controls) for item in value])
        return value

    def remove(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """The text without masks, and the spans in it masked."""
        if not self.chars:
            return text, []
        texts = {char: hidden for hidden, char in self.chars.items()}
        parts: list[str] = []
        spans: list[tuple[int, int]] = []
        place = 0
        for part in re.split(f"([{''.join(texts)}])", text):
            shown = texts.get(part, part)
            if part in texts:
                spans.append((place, place + len(shown)))
            parts.append(shown)
            place += len(shown)
        return "".join(parts), spans

    def text(self, text: str) -> str:
        """The text without masks."""
        return self.remove(text)[0]


NO_MASKS = Masks()
"""For texts without data."""


def encode_rendered(tokenizer: Tokenizer, text: str, masks: Masks) -> list[int]:
    """Token ids of a rendered text: control tokens where the template wrote them, what is masked as plain text."""
    shown, plain = masks.remove(text)
    encode: Any = tokenizer.encode  # one that has masks takes `plain`
    return encode(shown, plain=plain) if plain else tokenizer.encode(text)


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Message():
            yield value.content
            for text in (value.reasoning, value.name, value.tool_call_id):
                if text:
                    yield text
            yield from _texts(value.tool_calls)
        case ToolCall():
            yield value.name
            yield value.id or ""
            yield from _texts(value.arguments)
        case Mapping():
            for key, item in value.items():
                yield from _texts(key)
                yield from _texts(item)
        case list() | tuple():
            for item in value:
                yield from _texts(item)
