"""The events are ruamel.yaml's own, whatever the text: its parser, read character by character, is the oracle."""

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from evsys_runtime.config.yaml_events import parse_events

FIELDS = ("anchor", "explicit", "flow_style", "implicit", "style", "tag", "tags", "value", "version")
PIECES = [
    *(
        "a",
        "key",
        "b c",
        "1e-4",
        "- ",
        "-",
        "? ",
        "?",
        ": ",
        ":",
        "a: ",
        "key:\n",
        "x: y\n",
        "[",
        "]",
        "{",
        "}",
        ",",
    ),
    *("\n", "\n  ", "\n    ", "\n- ", "\n\n", " ", "  ", "\t", "\r\n", "\r", "\u2028", "\x85", "\ufeff"),
    *(
        "&a ",
        "*a",
        "*a ",
        "!t ",
        "!!str ",
        "! ",
        "!<x> ",
        "%YAML 1.2\n",
        "%TAG !e! x:\n",
        "!e!t ",
        "---\n",
        "--- ",
        "...\n",
    ),
    *(
        '"',
        "'",
        '"a\n b"',
        "'it''s'",
        '"\\u00e9\\',
        "|\n  a\n",
        "|2-\n  a\n",
        ">+\n  a\n   b\n",
        "| # c\n",
        "# c\n",
        " # c",
        "#",
    ),
    *(
        "@",
        "`",
        "%",
        "<<: ",
        "é",
        "\U0001f600",
        "k" * 1100,
        "word.word-word_1",
        "a:b",
        "a::b",
        "a#b",
        "?a",
        "-a",
    ),
]


def signature(parse: Callable[[str], Iterator[Any]], text: str) -> list[tuple]:
    """Every event with its place and content, and the error that ends them."""
    found: list[tuple] = []
    try:
        for event in parse(text):
            fields = tuple(str(getattr(event, name, None)) for name in FIELDS)
            found.append((type(event).__name__, place(event.start_mark), place(event.end_mark), fields))
    except MarkedYAMLError as exc:
        marks = place(exc.problem_mark), place(exc.context_mark)
        found.append((type(exc).__name__, str(exc.problem), str(exc.context), marks))
    except YAMLError as exc:
        found.append((type(exc).__name__, str(exc)))
    return found


def place(mark: Any) -> tuple[int, int, int] | None:
    return mark and (mark.index, mark.line, mark.column)


def oracle(text: str) -> Iterator[Any]:
    return YAML(typ="safe", pure=True).parse(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_events_and_errors_are_those_of_the_parser_that_reads_character_by_character(text: str):
    assert signature(parse_events, text) == signature(oracle, text)
