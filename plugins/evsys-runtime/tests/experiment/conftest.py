"""A small project for each test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_project import RUN, Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def run_text() -> Callable[..., str]:
    """Runs with some of the arm's text replaced: `run_text(("steps: 6", "steps: 2"))`."""

    def made(*changes: tuple[str, str], name: str | None = None) -> str:
        text = RUN
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return (f"\n  name: {name}" if name else "") + text

    return made
