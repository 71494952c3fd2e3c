"""Fake distributions: a folder on `sys.path` with metadata and modules, as pip leaves them."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from evsys import Registry


class Site:
    """A site-packages folder of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self,
        distribution: str,
        entry_points: dict[str, dict[str, str]] | str,
        modules: dict[str, str] | None = None,
        *,
        version: str = "1.0",
        requires: tuple[str, ...] = (),
    ) -> Path:
        """Write a distribution and return its metadata folder."""
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = [
            f"Name: {distribution}",
            f"Version: {version}",
            *(f"Requires-Dist: {each}" for each in requires),
        ]
        (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]), encoding="utf-8")
        if not isinstance(entry_points, str):
            entry_points = "\n\n".join(
                "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())])
                for group, entries in entry_points.items()
            )
        (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
        for module, source in (modules or {}).items():
            (self.folder / f"{module}.py").write_text(dedent(source), encoding="utf-8")
        return info


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty site-packages folder, in front of the real ones; what is imported from it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def registry() -> Registry:
    """A registry that knows nothing."""
    return Registry(entry_points=())
