"""Parsing events of YAML text: ruamel.yaml's parser, with shortcuts where it spends its time on experiment files.

Grammar, positions and errors are ruamel.yaml's, and a test compares them. Its reader and scanner are one object here, the next
token is looked up once, and one regular expression takes a gap, the words of a line or a plain key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml.docinfo import DocInfo
from ruamel.yaml.error import StreamMark
from ruamel.yaml.events import MappingStartEvent, ScalarEvent, SequenceStartEvent
from ruamel.yaml.parser import Parser
from ruamel.yaml.reader import Reader
from ruamel.yaml.scanner import Scanner
from ruamel.yaml.tokens import (
    BlockMappingStartToken,
    FlowEntryToken,
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
    KeyToken,
    ScalarToken,
    ValueToken,
)

__all__ = ["parse_events"]

_BREAKS = "\r\n\x85\u2028\u2029"
_BLANK = f"\0 \t{_BREAKS}"
_COMMENT = rf"#[^\0{_BREAKS}]*"
_GAP = re.compile(rf" +(?:{_COMMENT})?|{_COMMENT}")
_FLOW_GAP = re.compile(rf"[ \t]+(?:{_COMMENT})?|{_COMMENT}")
_KEY = re.compile(r"([A-Za-z0-9_.-]{1,200}):(?=[ \n])")


def _words(ends: str) -> re.Pattern[str]:
    """The part of a plain scalar on one line; `ends` are characters that end it anywhere."""
    word = rf"(?:[^{_BLANK}:{ends}]|:(?![{_BLANK}]))+"
    return re.compile(rf"{word}(?: +(?!#){word})*")


_FLOW_INDICATORS = {
    "[": FlowSequenceStartToken,
    "]": FlowSequenceEndToken,
    "{": FlowMappingStartToken,
    "}": FlowMappingEndToken,
    ",": FlowEntryToken,
}
_PLAIN = _words("")
_FLOW_PLAIN = _words(r",\[\]{}")


def parse_events(text: str) -> Iterator[Any]:
    """The parsing events of YAML 1.2 text, each with `start_mark.line` and `start_mark.column` from 0.

    Raises:
        YAMLError: the text isn't YAML.
    """
    return iter(_Parser(_Scanner(text)).get_event, None)


class _Scanner(Reader, Scanner):
    # ruamel.yaml looks these up through another object, or computes them anew each time.
    reader: Any = None
    scanner_processing_version = (1, 2)
    comment_handling = None
    flow_level: Any = 0

    def __init__(self, text: str) -> None:
        self.reader = self
        self.doc_infos = [DocInfo()]
        self.ready = False
        Reader.__init__(self, text, loader=self)
        Scanner.__init__(self, loader=self)

    # --- reading ---------------------------------------------------------------------------------------------------

    def peek(self, index: int = 0) -> str:
        return self.buffer[self.pointer + index]

    def forward(self, length: int = 1) -> None:
        passed = self.buffer[self.pointer : self.pointer + length]
        if passed.isprintable():  # no line break and no byte order mark
            self.pointer += length
            self.index += length
            self.column += length
        else:
            super().forward(length)

    def get_mark(self) -> StreamMark:
        return StreamMark(self.name, self.index, self.line, self.column)

    # --- tokens ----------------------------------------------------------------------------------------------------

    def check_token(self, *choices: Any) -> bool:
        if not self.ready:
            self._fetch()
        return bool(self.tokens) and (not choices or isinstance(self.tokens[0], choices))

    def peek_token(self) -> Any:
        if not self.ready:
            self._fetch()
        return self.tokens[0] if self.tokens else None

    def get_token(self) -> Any:
        token = self.peek_token()
        if token is not None:
            self.ready = False
            self.tokens_taken += 1
            del self.tokens[0]
        return token

    def _fetch(self) -> None:
        while not self.done and (not self.tokens or (self.possible_simple_keys and self.need_more_tokens())):
            self.fetch_more_tokens()
        self.ready = True

    def fetch_more_tokens(self) -> None:
        """Add the next token; those that begin with an indicator outside `[]{},` are left to ruamel.yaml."""
        self.scan_to_next_token()
        char = self.buffer[self.pointer]
        if not char.isalnum() and char not in _FLOW_INDICATORS:
            super().fetch_more_tokens()
            return
        if self.possible_simple_keys:
            self.stale_possible_simple_keys()
        if self.indent > self.column:
            self.unwind_indent(self.column)
        if char in _FLOW_INDICATORS:
            self.fetch_flow_indicator(char)
        else:
            self.fetch_plain()

    def fetch_plain(self) -> None:
        """Add a plain scalar, at once with its colon if it's a key of one word."""
        key = _KEY.match(self.buffer, self.pointer) if self.allow_simple_key else None
        if key is None:
            super().fetch_plain()
            return
        self.remove_possible_simple_key()
        start = self.get_mark()
        if not self.flow_level and self.add_indent(self.column):
            self.tokens.append(BlockMappingStartToken(start, start))
        self.forward(len(key[1]))
        end = self.get_mark()
        self.forward()
        self.tokens += (
            KeyToken(start, start),
            ScalarToken(key[1], True, start, end),
            ValueToken(end, self.get_mark()),
        )
        self.allow_simple_key = False

    def fetch_flow_indicator(self, char: str) -> None:
        """Add one of `[]{},`."""
        if char in "[{":
            self.save_possible_simple_key()
            self.flow_context.append(char)
        else:
            self.remove_possible_simple_key()
            if char != "," and self.flow_context:
                self.flow_context.pop()
        self.flow_level = len(self.flow_context)
        self.allow_simple_key = char in "[{,"
        start = self.get_mark()
        self.forward()
        self.tokens.append(_FLOW_INDICATORS[char](start, self.get_mark()))

    def scan_to_next_token(self) -> None:
        if self.index == 0 and self.peek() == "\ufeff":
            self.forward()
        gap = _FLOW_GAP if self.flow_level else _GAP
        while True:
            if match := gap.match(self.buffer, self.pointer):
                self.forward(match.end() - self.pointer)
            if self.buffer[self.pointer] not in _BREAKS:
                return
            self.scan_line_break()
            if not self.flow_level:
                self.allow_simple_key = True

    def scan_plain(self) -> ScalarToken:
        words = _FLOW_PLAIN if self.flow_level else _PLAIN
        chunks: list[str] = []
        spaces: list[str] = []
        start = end = self.get_mark()
        indent = self.indent + 1
        while self.peek() != "#" and (match := words.match(self.buffer, self.pointer)):
            self.allow_simple_key = False
            chunks += spaces
            chunks.append(match[0])
            self.forward(len(match[0]))
            end = self.get_mark()
            if self.peek() not in f" {_BREAKS}":
                break
            spaces = self.scan_plain_spaces(indent, start)
            if not spaces or (not self.flow_level and self.column < indent):
                break
        return ScalarToken("".join(chunks), True, start, end)


class _Parser(Parser):
    scanner: Any = None
    resolver: Any = None
    processing_version = (1, 2)
    comment_handling = None

    def __init__(self, scanner: _Scanner) -> None:
        self.scanner = scanner
        self.resolver = self
        super().__init__(loader=self)

    def get_event(self) -> Any:
        return self.state() if self.state else None

    def parse_node(self, block: bool = False, indentless_sequence: bool = False) -> Any:
        token = self.scanner.peek_token()
        kind = type(token)
        if kind is ScalarToken:
            self.scanner.get_token()
            self.state = self.states.pop()
            implicit = token.plain, not token.plain
            return ScalarEvent(
                None, None, implicit, token.value, token.start_mark, token.end_mark, token.style
            )
        if kind is FlowSequenceStartToken:
            self.state = self.parse_flow_sequence_first_entry
            return SequenceStartEvent(None, None, True, token.start_mark, token.end_mark, flow_style=True)
        if kind is FlowMappingStartToken:
            self.state = self.parse_flow_mapping_first_key
            return MappingStartEvent(None, None, True, token.start_mark, token.end_mark, flow_style=True)
        return super().parse_node(block, indentless_sequence)
