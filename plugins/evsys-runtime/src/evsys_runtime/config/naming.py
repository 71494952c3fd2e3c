"""Names of the arms of a matrix: from a template, from an axis on `name`, or from the values of the axes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from evsys_runtime.config import trees
from evsys_runtime.config.axes import NOT_SET, Axis, run_path
from evsys_runtime.config.document import Document
from evsys_runtime.config.names import MAX_LENGTH, slug
from evsys_runtime.config.report import Report

__all__ = ["Namer"]

_LONGEST_VALUE = 40
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[^{}]+|[{}]")


class Namer:
    """Names arms. Default names hold each axis and its value, `learning_rate-2e-05-lora_rank-8`."""

    def __init__(
        self,
        axes: Sequence[Axis],
        base: Mapping[str, Any],
        template: str | None,
        document: Document,
        report: Report,
    ) -> None:
        self._axes = axes
        self._slugs: dict[str, str] = {}
        self._pieces = None if template is None else self._compile(template, document, report)
        base_name = base.get("name")
        self._prefix = f"{slug(base_name)}-" if isinstance(base_name, str) else ""
        self._named_by_axis = any(axis.path == ("name",) for axis in axes)
        self._heads = [] if self._named_by_axis or template is not None else _heads(axes)
        self._labels = [
            [slug(f"{head}-{value}") for value in _distinct(axis)]
            for head, axis in zip(self._heads, axes if self._heads else (), strict=True)
        ]

    def name(
        self, chosen: Sequence[int], tree: Mapping[str, Any], drawn: Mapping[int, Any] | None = None
    ) -> str:
        """The name of the arm with these values and this tree.

        Args:
            chosen: the number of the value on each axis, `NOT_SET` where an axis doesn't apply.
            tree: the arm.
            drawn: the values that ranges have in it, by the number of the axis.
        """
        if self._pieces is not None:
            return self._slug("".join([piece(tree) for piece in self._pieces]))
        if self._named_by_axis:
            return self._slug(_text(tree.get("name")))
        drawn = drawn or {}
        parts = [
            slug(f"{self._heads[axis]}-{_short(drawn[axis])}") if axis in drawn else labels[index]
            for axis, (labels, index) in enumerate(zip(self._labels, chosen, strict=True))
            if index != NOT_SET
        ]
        name = self._prefix + "-".join(parts) if parts else self._prefix.rstrip("-") or "run"
        return name if len(name) <= MAX_LENGTH else slug(name)

    def _slug(self, text: str) -> str:
        if text not in self._slugs:
            self._slugs[text] = slug(text)
        return self._slugs[text]

    def _compile(
        self, template: str, document: Document, report: Report
    ) -> list[Callable[[Mapping[str, Any]], str]]:
        pieces: list[Callable[[Mapping[str, Any]], str]] = []
        place = "$.matrix.name_template"
        for match in _PIECE.finditer(template):
            text = match[0]
            if match[1] is None and text in {"{", "}"}:
                report.add(
                    document.problem(
                        place, f"a {text!r} is alone", "double it where the brace itself is meant"
                    )
                )
            elif match[1] is None:
                literal = text[0] if text in {"{{", "}}"} else text
                pieces.append(lambda _tree, literal=literal: literal)  # type: ignore[misc]
            else:
                pieces.append(self._reader(match[1].strip(), place, document, report))
        return pieces

    def _reader(
        self, name: str, place: str, document: Document, report: Report
    ) -> Callable[[Mapping[str, Any]], str]:
        try:
            path = run_path(name)
        except ValueError as exc:
            report.add(document.problem(place, str(exc)))
            return lambda _tree: ""
        unknown = False

        def read(tree: Mapping[str, Any]) -> str:
            nonlocal unknown
            value = trees.get(tree, path)
            if value is trees.MISSING and not unknown and not any(axis.path == path for axis in self._axes):
                unknown = True
                near = get_close_matches(name, [axis.name for axis in self._axes], n=1, cutoff=0.4)
                hint = f"did you mean {near[0]!r}?" if near else None
                report.add(document.problem(place, f"there is no {name!r} in a run", hint))
            return "" if value is trees.MISSING else _text(value)

        return read


def _text(value: Any) -> str:
    if isinstance(value, int | float) and value < 0:
        return f"minus-{_text(-value)}"  # a sign alongside a hyphen is lost in portable names, and -1 would pass for 1
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else trees.canonical(value)


def _heads(axes: Sequence[Axis]) -> list[str]:
    """For each axis the last part of its path that distinguishes it from the others."""
    heads = []
    for axis in axes:
        length = 1
        while length < len(axis.path) and any(
            other is not axis and other.path[-length:] == axis.path[-length:] for other in axes
        ):
            length += 1
        heads.append("-".join(map(str, axis.path[-length:])))
    return heads


def _distinct(axis: Axis) -> list[str]:
    """A short text for each value; those that would fall together, or say nothing, are numbered."""
    texts = [_short(value) for value in axis.values]
    slugs = [slug(text) if text else "" for text in texts]
    counts = Counter(slugs)
    return [
        text if text and counts[name] == 1 and len(name) <= _LONGEST_VALUE else str(number)
        for number, (text, name) in enumerate(zip(texts, slugs, strict=True))
    ]


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        named = value.get("name", value.get("kind"))
        return named if isinstance(named, str) else ""
    if isinstance(value, list | tuple):
        return ""
    return _text(value)
