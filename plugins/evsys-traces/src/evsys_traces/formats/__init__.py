"""The formats, each a module that reads the documents of a log; `items_of` finds the one that a document has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evsys_traces.formats import langfuse, openai, openinference, otlp
from evsys_traces.items import Item
from evsys_traces.trace import LeftOut

__all__ = ["FORMATS", "items_of"]

FORMATS: Mapping[
    str, tuple[Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any]], Iterator[Item]]]
] = {
    "otlp": (otlp.is_document, otlp.items),
    "openinference": (openinference.is_document, openinference.items),
    "langfuse": (langfuse.is_document, langfuse.items),
    "openai": (openai.is_document, openai.items),
}
"""By name: whether a document is of the format, and what it holds. The first one that says so reads it."""


def items_of(document: Mapping[str, Any], format: str | None = None) -> tuple[str, Iterator[Item]]:
    """The name of a document's format, and what the document holds.

    Raises:
        LeftOut: it is of none of the formats, or not of the named one.
    """
    for name in FORMATS if format is None else (format,):
        recognise, read = FORMATS[name]
        if recognise(document):
            return name, read(document)
    raise LeftOut("not a known kind of record" if format is None else f"not a record of {format}")
