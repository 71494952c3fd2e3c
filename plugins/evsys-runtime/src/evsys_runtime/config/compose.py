"""YAML events to nodes with positions, bounded in depth and in what aliases may unfold to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from evsys.errors import ConfigError, Problem
from evsys_runtime.config.scalars import CORE_TAGS, Scalar, join_surrogates, resolve, resolve_as

__all__ = ["MAX_ALIASED", "MAX_DEPTH", "Node", "Pair", "compose"]

MAX_DEPTH = 100
"""Deepest nesting of lists and mappings."""
MAX_ALIASED = 100_000
"""How many values the aliases of a file may add to those written in it."""

_NEL = "\x85"

_HINTS = {
    "cannot start any token": "quote text that begins with a special character",
    "mapping values are not allowed here": "check the indentation, and quote text that contains ': '",
    "expected <block end>": "check the indentation",
    "could not find expected ':'": "a key needs a colon and a space after it",
    "found unexpected end of stream": "a quote or bracket is never closed",
    "undefined tag handle": "tags are not accepted; write plain values",
}


@attrs.define(kw_only=True)
class Pair:
    """An entry of a mapping. `position` is where its value is referred to: an alias, or the value itself."""

    key: Node
    value: Node
    position: tuple[int, int]


@attrs.define(kw_only=True, eq=False)
class Node:
    """A value with its position: a list (`items`), a mapping (`pairs`) or a scalar (`value`).

    `tag` is a tag that isn't accepted, `fault` why a scalar has no value, `literal` the spelling of an unquoted scalar, `size` counts the values in it
    with every alias followed.
    """

    position: tuple[int, int]
    items: list[tuple[Node, tuple[int, int]]] | None = None
    pairs: list[Pair] | None = None
    value: Scalar = None
    literal: str | None = None
    tag: str | None = None
    fault: str | None = None
    size: int = 1

    @property
    def is_merge(self) -> bool:
        """True for an unquoted `<<`."""
        return self.literal == "<<"

    def merges(self) -> Iterator[Node]:
        """The nodes that `<<` names, in order of precedence."""
        for pair in self.pairs or ():
            if pair.key.is_merge:
                if pair.value.items is None:
                    yield pair.value
                else:
                    yield from (item for item, _ in pair.value.items)


def compose(text: str, source: str) -> tuple[Node | None, list[Problem]]:
    """Parse text into the node of its only document, None where there is none, and the recoverable problems.

    Raises:
        ConfigError: a syntax error, several documents, an unknown alias, or nesting beyond the bounds.
    """
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    from evsys_runtime.config.yaml_events import parse_events

    stand_in = _stand_in(text)
    try:
        composer = _Composer(parse_events(text.replace(_NEL, stand_in)), source, stand_in)
        root = composer.document()
    except MarkedYAMLError as exc:
        raise _syntax_error(exc, source) from exc
    except ReaderError as exc:
        before = text[: exc.position]
        position = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = f"the character U+{ord(text[exc.position]):04X} is not accepted"
        raise ConfigError([_problem("$", source, position, message, "remove it")]) from exc
    except YAMLError as exc:
        raise ConfigError([_problem("$", source, (1, 1), f"not valid YAML: {exc}", None)]) from exc
    return root, composer.problems


def _stand_in(text: str) -> str:
    """A character for U+0085, which the scanner takes for a line break, as YAML 1.1 did and 1.2 doesn't."""
    return (
        next((char for char in map(chr, range(0xE000, 0xF8FF)) if char not in text), _NEL)
        if _NEL in text
        else _NEL
    )


def _problem(path: str, source: str, position: tuple[int, int], message: str, hint: str | None) -> Problem:
    line, column = position
    return Problem(path=path, message=message, hint=hint, source=source, line=line, column=column)


def _syntax_error(exc: Any, source: str) -> ConfigError:
    mark = exc.problem_mark or exc.context_mark
    position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    detail = str(exc.problem or exc.context or "it can't be parsed")
    hint = next((hint for words, hint in _HINTS.items() if words in detail), None)
    if "'\\t'" in detail:
        detail, hint = "a tab where YAML allows spaces only", "indent with spaces"
    if exc.context_mark and exc.context_mark.line + 1 != position[0]:
        detail = f"{detail} ({exc.context} that starts on line {exc.context_mark.line + 1})"
    return ConfigError([_problem("$", source, position, f"not valid YAML: {detail}", hint)])


class _Composer:
    def __init__(self, events: Iterator[Any], source: str, stand_in: str) -> None:
        self.events = events
        self.stand_in = stand_in
        self.source = source
        self.problems: list[Problem] = []
        self.anchors: dict[str, Node] = {}
        self.open: set[str] = set()
        self.aliased = 0

    def document(self) -> Node | None:
        """The node of the only document."""
        root: Node | None = None
        seen = 0
        for event in self.events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                seen += 1
                if seen > 1:
                    raise self._fatal(
                        event,
                        "a second YAML document starts here",
                        "one file holds one experiment; remove the '---'",
                    )
                if event.version and tuple(event.version) < (1, 2):
                    raise self._fatal(
                        event, "the file asks for YAML 1.1", "evsys reads YAML 1.2; drop the directive"
                    )
                root = self.node(next(self.events), 0)[0]
        if root is not None and root.literal == "" and root.value is None and root.tag is None:
            return None
        return root

    def node(self, event: Any, depth: int) -> tuple[Node, tuple[int, int]]:
        """The node that starts with `event`, and where it is referred to."""
        position = (event.start_mark.line + 1, event.start_mark.column + 1)
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._alias(event), position
        if depth > MAX_DEPTH:
            raise self._fatal(event, f"nested more than {MAX_DEPTH} levels deep", "flatten it")
        if event.anchor:
            self.open.add(event.anchor)
        if kind == "ScalarEvent":
            node = self._scalar(event, position)
        else:
            node = Node(
                position=position, tag=_foreign(event.tag, "seq" if kind == "SequenceStartEvent" else "map")
            )
            self._collect(node, kind, depth)
        if event.anchor:
            self.open.discard(event.anchor)
            self.anchors[event.anchor] = node
        return node, position

    def _collect(self, node: Node, kind: str, depth: int) -> None:
        if kind == "SequenceStartEvent":
            node.items = []
            while type(event := next(self.events)).__name__ != "SequenceEndEvent":
                item = self.node(event, depth + 1)
                node.items.append(item)
                node.size += item[0].size
            return
        node.pairs = []
        while type(event := next(self.events)).__name__ != "MappingEndEvent":
            key, _ = self.node(event, depth + 1)
            value, place = self.node(next(self.events), depth + 1)
            node.pairs.append(Pair(key=key, value=value, position=place))
            node.size += key.size + value.size

    def _alias(self, event: Any) -> Node:
        if event.anchor in self.open:
            raise self._fatal(
                event, f"*{event.anchor} is inside the value that it refers to", "write the value out"
            )
        node = self.anchors.get(event.anchor)
        if node is None:
            raise self._fatal(
                event, f"*{event.anchor} refers to no anchor", f"mark a value before it with &{event.anchor}"
            )
        self.aliased += node.size
        if self.aliased > MAX_ALIASED:
            raise self._fatal(
                event,
                f"the file's aliases unfold to more than {MAX_ALIASED:,} values",
                "write less by reference",
            )
        return node

    def _scalar(self, event: Any, position: tuple[int, int]) -> Node:
        tag, text = event.tag, event.value.replace(self.stand_in, _NEL)
        literal = None if event.style else text
        foreign = _foreign(None if tag == "!" else tag, "str", "int", "float", "bool", "null")
        value: Scalar = text
        try:
            if tag in CORE_TAGS and foreign is None:
                value = resolve_as(CORE_TAGS[tag], text)
            elif tag is None and literal is not None:
                value = resolve(literal)
        except ValueError as exc:
            return Node(position=position, literal=literal, tag=foreign, fault=str(exc))
        if isinstance(value, str):
            value = join_surrogates(value)
        return Node(position=position, value=value, literal=literal, tag=foreign)

    def _fatal(self, event: Any, message: str, hint: str) -> ConfigError:
        position = (event.start_mark.line + 1, event.start_mark.column + 1)
        return ConfigError([*self.problems, _problem("$", self.source, position, message, hint)])


def _foreign(tag: str | None, *accepted: str) -> str | None:
    """A tag that isn't accepted here, as its author wrote it."""
    if tag is None or CORE_TAGS.get(tag) in accepted:
        return None
    short = tag.removeprefix("tag:yaml.org,2002:")
    return f"!!{short}" if short != tag else tag
