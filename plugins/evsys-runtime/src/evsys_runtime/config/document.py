"""YAML 1.2 to a plain tree and a table of positions. Nothing is constructed but mappings, lists, text and numbers.

What a reader can recover from (a key given twice, a tag, a key that isn't text, `.nan`) is collected, so that it is
reported together with all other faults; an error that makes the rest unreadable is raised at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, Problem
from evsys_runtime.config import paths
from evsys_runtime.config.compose import Node, Pair, compose
from evsys_runtime.config.scalars import describe, is_broken, is_non_finite

__all__ = ["Document", "Position", "load", "loads", "parse", "parse_value", "read"]

type Position = tuple[int, int]


@attrs.frozen(kw_only=True)
class Document:
    """An experiment file as it was read.

    `positions` has the line and column (from 1) of every value, `keys` those of every key, both by path;
    `literals` the spelling of each unquoted value that isn't text (`010` is read as 10). `problems` is what could be
    read but not accepted. An experiment given in Python has no positions. `overrides` has what was set from outside: a path, and the option that set it.
    """

    tree: dict[str, Any]
    source: str
    text: str
    positions: Mapping[str, Position]
    keys: Mapping[str, Position]
    literals: Mapping[str, str]
    problems: tuple[Problem, ...] = ()
    overrides: Mapping[str, str] = attrs.field(factory=dict)

    def problem(self, path: str, message: str, hint: str | None = None) -> Problem:
        """A problem at `path`, with its place in the file, or in the override that set it."""
        for candidate in paths.ancestors(path) if self.overrides else ():
            if candidate in self.overrides:
                return Problem(path=path, message=message, hint=hint, source=self.overrides[candidate])
        line, column = self.locate(path) if self.positions else (None, None)
        return Problem(path=path, message=message, hint=hint, source=self.source, line=line, column=column)

    def locate(self, path: str) -> Position:
        """The place of `path`: its key, for items of lists their value, for a missing one the mapping it belongs
        in.
        """
        for candidate in paths.ancestors(path):
            position = self.keys.get(candidate) or self.positions.get(candidate)
            if position is not None:
                return position
        return (1, 1)


def load(path: str | Path) -> Document:
    """Read a file and refuse it when anything is wrong with it as YAML.

    Raises:
        ConfigError: with every problem, or the first that makes the rest unreadable.
    """
    return _accept(read(path))


def loads(text: str, source: str = "<text>") -> Document:
    """Like `load`, from text; `source` is what messages call it.

    Raises:
        ConfigError: see `load`.
    """
    return _accept(parse(text, source))


def read(path: str | Path) -> Document:
    """Read a file and keep the recoverable problems in `Document.problems`.

    Raises:
        ConfigError: the file can't be read, isn't UTF-8 or can't be parsed.
    """
    source = str(path)
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError as exc:
        raise _unreadable(source, "no such file", _similar(Path(path))) from exc
    except IsADirectoryError as exc:
        hint = "name the experiment file in it, for example " + str(Path(path) / "config.yaml")
        raise _unreadable(source, "this is a folder", hint) from exc
    except OSError as exc:
        raise _unreadable(source, f"can't be read: {exc.strerror or exc}", "check its permissions") from exc
    return parse(_decode(content, source), source)


def parse(text: str, source: str = "<text>") -> Document:
    """Like `read`, from text.

    Raises:
        ConfigError: the text can't be parsed, or is not a mapping.
    """
    text = text.removeprefix("\ufeff")
    root, problems = compose(text, source)
    if root is None:
        raise _unreadable(source, "the file is empty", "`evsys new-experiment` writes one to start from")
    builder = _Builder(source, problems)
    tree = builder.build(root, "$")
    if not isinstance(tree, dict):
        line, column = root.position
        raise ConfigError(
            [
                Problem(
                    path="$",
                    message=f"expected a mapping of keys to values, got {describe(tree)}",
                    source=source,
                    line=line,
                    column=column,
                )
            ]
        )
    return Document(
        tree=tree,
        source=source,
        text=text,
        positions=builder.positions,
        keys=builder.keys,
        literals=builder.literals,
        problems=tuple(builder.problems),
    )


def parse_value(text: str, source: str) -> Any:
    """The value that a piece of YAML represents: a scalar, or a list or mapping in flow style.

    Raises:
        ConfigError: it can't be parsed or accepted. Its problems have no line, since there is no file.
    """
    try:
        root, problems = compose(text, source)
        builder = _Builder(source, problems)
        value = None if root is None else builder.build(root, "$")
        if builder.problems:
            raise ConfigError(builder.problems)
    except ConfigError as exc:
        found = [attrs.evolve(problem, path="", line=None, column=None) for problem in exc.problems]
        raise ConfigError(found) from exc
    return value


def _accept(document: Document) -> Document:
    if document.problems:
        raise ConfigError(document.problems)
    return document


def _unreadable(source: str, message: str, hint: str | None, line: int | None = None) -> ConfigError:
    return ConfigError([Problem(path="", message=message, hint=hint, source=source, line=line)])


def _similar(path: Path) -> str | None:
    if not path.parent.is_dir():
        return f"the folder {path.parent} doesn't exist either"
    names = [item.name for item in path.parent.iterdir() if item.suffix in {".yaml", ".yml"}]
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else None


def _decode(content: bytes, source: str) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _unreadable(source, "the file is UTF-16", "save it as UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise _unreadable(source, f"byte {exc.start} isn't UTF-8", "save the file as UTF-8", line) from exc


class _Builder:
    """Turns nodes into plain values and notes the place of each path."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = problems
        self.seen = set(problems)
        self.positions: dict[str, Position] = {}
        self.keys: dict[str, Position] = {}
        self.literals: dict[str, str] = {}

    def build(self, node: Node, path: str, at: Position | None = None) -> Any:
        self.positions[path] = at or node.position
        if node.tag is not None:
            self._problem(
                path,
                node.position,
                f"the tag {node.tag} is not accepted",
                "write plain values; nothing is ever constructed from a file",
            )
        if node.items is not None:
            return [
                self.build(item, paths.child(path, index), position)
                for index, (item, position) in enumerate(node.items)
            ]
        if node.pairs is not None:
            return self._mapping(node, path)
        if node.fault is not None:
            self._problem(path, node.position, node.fault, "quote it if it is text")
            return None
        if is_non_finite(node.value):
            self._problem(path, node.position, f"{node.literal} is not a finite number", "give a number")
            return 0.0
        if is_broken(node.value):
            self._problem(
                path, node.position, "the text holds half of a surrogate pair", "complete the \\u escape"
            )
            return ""
        if node.literal is not None and not isinstance(node.value, str):
            self.literals[path] = node.literal
        return node.value

    def _mapping(self, node: Node, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, pair in self._own(node, path).items():
            place = paths.child(path, key)
            self.keys[place] = pair.key.position
            result[key] = self.build(pair.value, place, pair.position)
        for key, pair in self._merged(node, path).items():
            if key not in result:
                place = paths.child(path, key)
                self.keys[place] = pair.key.position
                result[key] = self.build(pair.value, place, pair.position)
        return result

    def _own(self, node: Node, path: str) -> dict[str, Pair]:
        """The pairs that a mapping itself gives; the first of two with one key."""
        own: dict[str, Pair] = {}
        for pair in node.pairs or ():
            key = pair.key.value
            if pair.key.is_merge:
                continue
            if not isinstance(key, str) or pair.key.tag is not None or is_broken(key):
                self._bad_key(path, pair.key)
            elif key in own:
                first, second = own[key].key.position[0], pair.key.position[0]
                lines = f"on line {first}" if first == second else f"on lines {first} and {second}"
                message = f"the key {key!r} is given twice, {lines}"
                self._problem(paths.child(path, key), pair.key.position, message, "keep one of them")
            else:
                own[key] = pair
        return own

    def _merged(self, node: Node, path: str) -> dict[str, Pair]:
        """The pairs that `<<` brings in; of several mappings the first that has a key wins."""
        merged: dict[str, Pair] = {}
        for source in node.merges():
            if source.pairs is None:
                self._problem(
                    path, source.position, "`<<` merges mappings only", "point it at a mapping's anchor"
                )
                continue
            for key, pair in {**self._merged(source, path), **self._own(source, path)}.items():
                merged.setdefault(key, pair)
        return merged

    def _bad_key(self, path: str, node: Node) -> None:
        if node.tag is not None:
            message, hint = f"the tag {node.tag} is not accepted on a key", "write plain text"
        elif node.items is not None or node.pairs is not None:
            message, hint = "a key must be text, not a list or a mapping", "give the key a name"
        elif node.fault is not None:
            message, hint = node.fault, "quote it if it is text"
        elif is_broken(node.value):
            message, hint = "the key holds half of a surrogate pair", "complete the \\u escape"
        else:
            message = f"a key must be text, and {node.literal or 'an empty key'} is {describe(node.value)}"
            hint = f'quote it: "{node.literal}"' if node.literal else "give the key a name"
        self._problem(path, node.position, message, hint)

    def _problem(self, path: str, position: Position, message: str, hint: str) -> None:
        line, column = position
        problem = Problem(path=path, message=message, hint=hint, source=self.source, line=line, column=column)
        if problem not in self.seen:  # an alias is built once for each place it is in
            self.seen.add(problem)
            self.problems.append(problem)
