"""`redact`: takes secrets, e-mail addresses and phone numbers out of rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_record.secrets import REDACTED, Redactor
from evsys_runtime.data.bounded_regex import compile_pattern

__all__ = ["Redact"]

Kind = Literal["secret", "email", "phone"]

_EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])")
_PHONE = re.compile(
    r"""(?x)(?<![\w.+/-])(?:
    (?:\+|00)[1-9]\d{0,2}(?:[ ./-]?(?:\(\d{1,5}\)|\d{1,5})){2,6}     # international
    |(?:\(0?\d{2,4}\)[ ./-]?|0[1-9]\d{1,3}[ /-])\d{3,8}(?:[ -]\d{2,8}){0,3}  # with an area code
    |\d{3}[ .-]\d{3}[ .-]\d{4}
    )(?![\w/-]|[.,]\d)"""
)
"""The usual forms; a date, a version or a plain number isn't one."""


class Redact:
    """Replaces personal data and secrets in every text of a row with their kind: `[email 1]`.

    Equal values in a row get equal numbers, so that a conversation keeps its sense. Patterns find the usual forms and no
    names: look at rows before you share them.
    """

    name: ClassVar[str] = "redact"
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `redact`."""

        kinds: tuple[Kind, ...] = option(
            ("secret", "email", "phone"), "what to replace: `secret`, `email`, `phone`"
        )
        patterns: Mapping[str, str] = option(
            attrs.Factory(dict), "further kinds, by name: regular expressions, such as `order: 'ORD-[0-9]+'`"
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        found: dict[str, re.Pattern[str]] = {}
        if "email" in self.config.kinds:
            found["email"] = _EMAIL
        if "phone" in self.config.kinds:
            found["phone"] = _PHONE
        found |= {name: compile_pattern(pattern) for name, pattern in self.config.patterns.items()}
        self._patterns = found
        self._redactor = Redactor() if "secret" in self.config.kinds else None
        self.replaced: Counter[str] = Counter()

    def __call__(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        self.replaced = Counter()
        for row in rows:
            names: dict[tuple[str, str], str] = {}
            yield {key: self._clean(value, names) for key, value in row.items()}

    def _clean(self, value: Any, names: dict[tuple[str, str], str]) -> Any:
        if isinstance(value, str):
            return self._clean_text(value, names)
        if isinstance(value, Mapping):
            return {
                self._clean_text(str(key), names): self._clean(each, names) for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._clean(each, names) for each in value]
        return value

    def _clean_text(self, text: str, names: dict[tuple[str, str], str]) -> str:
        if self._redactor is not None:
            without = self._redactor.text(text)
            self.replaced["secret"] += without.count(REDACTED) - text.count(REDACTED)
            text = without
        for kind, pattern in self._patterns.items():
            text = pattern.sub(partial(self._name, kind, names), text)
        return text

    def _name(self, kind: str, names: dict[tuple[str, str], str], found: re.Match[str]) -> str:
        self.replaced[kind] += 1
        key = kind, re.sub(r"\W", "", found[0]).lower()
        if key not in names:
            names[key] = f"[{kind} {1 + sum(known == kind for known, _ in names)}]"
        return names[key]
