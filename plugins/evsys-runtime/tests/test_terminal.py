"""Text from outside shows on a terminal, in files for people, and in JSON, and is never obeyed."""

import io
import json
import unicodedata

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_record.run_record import paragraph
from evsys_record.text import visible
from evsys_runtime.commands import json_text
from evsys_runtime.live_lines import LiveLines
from evsys_runtime.logging import configure, run_logger
from evsys_runtime.terminal import echo

CLIPBOARD = "\x1b]52;c;aGFja2Vk\x07"
CLEAR = "\x1b[2J\x1b[H"
C1 = "\x9b2J"
BIDI = "\u202egnp.exe"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢字 🙂", "plain é 漢字 🙂"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("of\r\nWindows", "of\nWindows"),
        ("over\rwritten", r"over\rwritten"),
        (CLIPBOARD, r"\x1b]52;c;aGFja2Vk\x07"),
        (CLEAR, r"\x1b[2J\x1b[H"),
        (C1, r"\x9b2J"),
        (BIDI, r"\u202egnp.exe"),
        ("lone \udcff", r"lone \udcff"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("nul \0 and del \x7f", r"nul \x00 and del \x7f"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text, shown):
    assert visible(text) == shown


def test_our_colours_go_through_where_they_are_asked_for_and_hidden_text_never_does():
    assert visible("\x1b[1;32mok\x1b[0m", styles=True) == "\x1b[1;32mok\x1b[0m"
    assert visible("\x1b[8mhidden\x1b[30;40m", styles=True) == r"\x1b[8mhidden\x1b[30;40m"


@given(st.text())
def test_no_control_character_is_left(text):
    left = {
        character
        for character in visible(text)
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}
    }
    assert left <= {"\n", "\t"}


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_reads_back_as_it_was_and_has_no_control_character(value):
    text = json_text({"value": value}, io.StringIO())
    assert json.loads(text) == {"value": value}
    assert not {character for character in text if unicodedata.category(character) in {"Cc", "Cs"}} - {"\n"}


def test_commands_logs_live_lines_and_files_for_people_show_it(capsys):
    hostile = CLIPBOARD + CLEAR + C1
    echo(f"answer: {hostile}")
    echo(click.style("ok", fg="green"), err=True)
    run_logger(None, configure(console_level="info", stream=None)).info("service.answered", body=hostile)
    lines = LiveLines()
    lines.show("run-s0", f"scoring {hostile}")
    lines.above(f"failed: {hostile}")
    lines.end()
    out, err = capsys.readouterr()
    for found in (out, err, paragraph(hostile)):
        assert "\x1b]52" not in found
        assert "\x1b[2J" not in found
        assert "\x9b" not in found
