"""Each test gets a project of its own, with the real command line over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path, capsys)
