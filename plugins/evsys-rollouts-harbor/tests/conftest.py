"""What tests of Harbor's own need: Harbor in one of the versions that evsys runs on, and a place to leave files in."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "support"))
NEED_HARBOR = {
    "test_benchmarks.py",
    "test_engine.py",
    "test_folders_kept.py",
    "test_harness.py",
    "test_native.py",
    "test_training.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say so of the larger part of these tests where they are left out."""
    if find_spec("harbor") is None:
        skip = pytest.mark.skip(reason="harbor isn't installed; `nox -s harbor` runs these tests")
        for item in items:
            if item.path.parent == HERE and item.path.name in NEED_HARBOR:
                item.add_marker(skip)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which engine and sandboxes make theirs; it is empty again after the test."""
    import tempfile

    from evsys_rollouts_harbor import folders

    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(folders, "_IN_MEMORY", place)
    yield place
    assert [entry.name for entry in place.iterdir()] == []
