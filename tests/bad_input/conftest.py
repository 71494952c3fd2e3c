"""Each test gets a project of its own, with the real command line over it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab import Lab


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    # What makes records safe from power cuts, and asks git for a revision, takes most of the time of a small run.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    return Lab(tmp_path, capsys)
