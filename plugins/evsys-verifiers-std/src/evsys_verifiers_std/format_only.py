"""The verifier `format_only`: whether an answer has the wanted form, regardless of its content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys import option
from evsys_verifiers_std.configurable import Configured

if TYPE_CHECKING:
    from evsys.types import Rollout

__all__ = ["FormatOnly"]


@attrs.frozen(kw_only=True)
class FormatOnlyParams:
    """The required form of an answer; at least one of these."""

    tags: tuple[str, ...] = option((), "Tags that come once each, in this order, with something inside.")
    only_tags: bool = option(False, "Allow only whitespace outside the tags.")
    min_characters: int | None = option(None, "Fewest characters, without whitespace at the ends.", ge=1)
    max_characters: int | None = option(None, "Most characters, without whitespace at the ends.", ge=1)
    forbidden: tuple[str, ...] = option((), "Texts that may not come up.")

    def __attrs_post_init__(self) -> None:
        for tag in self.tags:
            if not re.fullmatch(r"[A-Za-z_][\w.-]*", tag):
                raise ValueError(f"tags holds {tag!r}; give names such as think, without brackets")
        if len(set(self.tags)) < len(self.tags):
            raise ValueError("tags holds a name twice, and each tag may come once in an answer")
        if not (self.tags or self.min_characters or self.max_characters or self.forbidden):
            raise ValueError("it asks for nothing, so every answer would pass; set tags or lengths")
        if self.only_tags and not self.tags:
            raise ValueError("only_tags needs tags")
        if "" in self.forbidden:
            raise ValueError("forbidden holds an empty text, which every answer contains")
        if self.min_characters and self.max_characters and self.min_characters > self.max_characters:
            raise ValueError("min_characters is above max_characters")


class FormatOnly(Configured):
    """1.0 when the answer has the wanted form. The task's expected answer isn't used."""

    name: ClassVar[str] = "format_only"
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"tags": ["think", "answer"]}}
    Config = FormatOnlyParams

    def __call__(
        self, model_output: str, expected: Any, params: Mapping[str, Any], rollout: Rollout | None = None
    ) -> float:
        """Look at the form of `model_output`, with the reasoning in front of it if `think` is one of the tags."""
        settings: FormatOnlyParams = self._settings(params)
        text = model_output.strip()
        if rollout is not None and "think" in settings.tags:
            text = _with_reasoning(rollout, text)
        return float(
            len(text) >= (settings.min_characters or 0)
            and (settings.max_characters is None or len(text) <= settings.max_characters)
            and not any(wrong in text for wrong in settings.forbidden)
            and _has_tags(text, settings.tags, only=settings.only_tags)
        )

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> str | None:
        """An answer of the wanted form."""
        return _well_formed(self._settings(params))

    def counterexample(self, expected: Any, params: Mapping[str, Any]) -> str:
        """An answer of another form."""
        settings: FormatOnlyParams = self._settings(params)
        if settings.tags or settings.min_characters:
            return ""
        return settings.forbidden[0] if settings.forbidden else "x" * ((settings.max_characters or 0) + 1)


def _with_reasoning(rollout: Rollout, text: str) -> str:
    from evsys_runtime.data.answers import answer_text

    messages = [turn.message for turn in rollout.turns] or list(rollout.messages)
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or last.reasoning is None:
        return text
    return answer_text(attrs.evolve(last, content=text)).strip()


def _well_formed(settings: FormatOnlyParams) -> str | None:
    """A text of the wanted form; None where filling words don't make one."""
    fillers = ("x", "0", "?")
    for filler in fillers:
        inside = "".join(f"<{tag}>{filler}</{tag}>" for tag in settings.tags) or filler
        short = (settings.min_characters or 0) - len(inside)
        if short > 0 and settings.tags:
            last = f"</{settings.tags[-1]}>"
            text = inside.removesuffix(last) + filler * short + last
        else:
            text = inside + filler * short
        if len(text) <= (settings.max_characters or len(text)) and not any(
            w in text for w in settings.forbidden
        ):
            return text
    return None


def _has_tags(text: str, tags: tuple[str, ...], *, only: bool) -> bool:
    """True when each tag opens and closes once, in order, one after the other, around something."""
    place = 0
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1:
            return False
        start, end = text.index(opening), text.index(closing)
        inside = start + len(opening)
        if start < place or not text[inside:end].strip():
            return False
        if only and text[place:start].strip():
            return False
        place = end + len(closing)
    return not (only and text[place:].strip())
