import io

import pytest

from evsys_runtime.terminal import takes_colours


class Terminal(io.StringIO):
    def isatty(self):
        return not self.closed


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({}, True),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "0"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_terminal_takes_colours_unless_its_user_wants_none(monkeypatch, environment, coloured):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert takes_colours(Terminal()) is coloured
    assert takes_colours(io.StringIO()) is False


def test_a_terminal_that_was_closed_takes_nothing():
    stream = Terminal()
    stream.close()
    assert takes_colours(stream) is False
