"""`evsys conformance` before it runs anything: what it says of names that mean nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evsys_conformance.commands import conformance


@pytest.fixture
def called() -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(conformance, arguments)


def test_a_misspelt_group_is_named_though_nothing_is_left_to_check(called, tmp_path, monkeypatch):
    info = tmp_path / "evsys_stranger-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[evsys-verifiers]\nmine = stranger:Mine\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    outcome = called("evsys-stranger")
    assert outcome.exit_code != 0
    assert outcome.stderr == (
        "warning: evsys-stranger: 'mine' is in the unknown group 'evsys-verifiers' and can't be found; "
        "did you mean 'evsys.verifiers'?\n"
    )
    assert "no installed distribution called 'evsys-stranger'" in str(outcome.exception)


@pytest.mark.parametrize("name", [".", "project", "sub"])
def test_a_folder_is_told_from_a_misspelt_distribution(called, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    outcome = called(name)
    assert outcome.exit_code == 2
    assert f"{name!r} isn't a distribution, and the suite checks what is installed. Plugins" in outcome.stderr
    assert "subclasses their kind's class" in outcome.stderr


def test_the_folder_of_a_package_comes_with_the_name_to_write(called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text("[project]\nname = 'my-thing'\n", encoding="utf-8")
    outcome = called(".")
    assert outcome.exit_code == 2
    assert "Install it, and write my-thing." in outcome.stderr
