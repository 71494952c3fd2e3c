"""Words on how far long work is: seldom, and nothing is left of them on a terminal."""

from __future__ import annotations

import pytest

from evsys_cli import progress
from evsys_cli.progress import Progress


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]):
    told = Progress()
    told.tell("a: 1000")
    told.end()
    assert capsys.readouterr().err == ""


def test_long_work_says_how_far_it_is_in_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    told = Progress()
    told.tell("a: 1000")
    told.tell("a: 2000")
    told.end()
    assert capsys.readouterr().err == "a: 1000\na: 2000\n"


def test_a_live_line_takes_the_place_of_the_one_before_and_is_taken_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "takes_colours", lambda _stream: True)
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.0)
    told = Progress()
    told.tell("a: 1000")
    told.tell("a: 2000")
    told.end()
    gone = f"\r{' ' * 7}\r"
    assert capsys.readouterr().err == f"a: 1000{gone}a: 2000{gone}"
