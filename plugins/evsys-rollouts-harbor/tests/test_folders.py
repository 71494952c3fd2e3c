"""Which folders of trials stay."""

import logging
from pathlib import Path

import pytest

from evsys.types import RolloutLimits
from evsys_rollouts_harbor import folders
from evsys_rollouts_harbor.folders import Folders, concurrency_limit, forget_loggers


@pytest.fixture
def make(scratch: Path):
    made = []

    def make(**settings) -> Folders:
        directory, keep = settings.pop("directory", None), settings.pop("keep", "all")
        one = Folders(limits=RolloutLimits(directory=directory, keep=keep), most=2, **settings)
        one.open()
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def ended(one: Folders, name: str, *, failed: bool = False, text: str = "x") -> Path | None:
    (one.trials / name).mkdir()
    (one.trials / name / "config.json").write_text(text, encoding="utf-8")
    return one.settle(name, failed=failed)


def test_without_a_place_nothing_stays(make):
    one = make()
    assert ended(one, "a") is None
    assert ended(one, "b", failed=True) is None
    assert list(one.trials.iterdir()) == []


def test_so_many_good_ones_and_so_many_failed_ones_stay(make, tmp_path):
    place = tmp_path / "run" / "files"
    one = make(directory=place)
    kept = [ended(one, f"good-{i}") for i in range(4)] + [
        ended(one, f"bad-{i}", failed=True) for i in range(4)
    ]
    assert [path.name for path in kept if path] == ["good-0", "good-1", "bad-0", "bad-1"]
    assert sorted(path.name for path in place.iterdir()) == ["bad-0", "bad-1", "good-0", "good-1"]


def test_those_of_failed_ones_alone_stay_where_that_is_asked_for(make, tmp_path):
    one = make(directory=tmp_path / "files", keep="errors")
    assert ended(one, "good") is None
    assert ended(one, "bad", failed=True) is not None


def test_a_place_where_nothing_stays_is_not_made(make, tmp_path):
    one = make(directory=tmp_path / "files", keep="errors")
    ended(one, "good")
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize("secret", ["sk-12345", 'with "quotes"', "two\nlines"])
def test_no_secret_stays_in_what_is_kept(make, tmp_path, secret):
    import json

    one = make(directory=tmp_path / "files", secrets=[secret])
    kept = ended(one, "a", text=f"{secret} and {json.dumps({'key': secret})}")
    text = (kept / "config.json").read_text(encoding="utf-8")
    assert secret not in text
    assert text.count("[secret]") == 2


def test_a_file_system_in_memory_without_room_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(folders, "_IN_MEMORY", tmp_path)
    assert folders._fast() == tmp_path
    monkeypatch.setattr(folders, "_ROOM", 1 << 62)
    assert folders._fast() is None
    monkeypatch.setattr(folders, "_IN_MEMORY", tmp_path / "gone")
    assert folders._fast() is None


@pytest.mark.parametrize(
    ("soft", "wanted", "sandboxed", "expected"),
    [
        (1024, 64, False, 64),
        (1024, 1200, False, 341),
        (1024, 1200, True, 85),
        (2, 5, False, 1),
        (folders.resource.RLIM_INFINITY, 10**6, True, 10**6),
    ],
)
def test_concurrency_follows_how_many_files_may_be_open(monkeypatch, soft, wanted, sandboxed, expected):
    monkeypatch.setattr(folders.resource, "getrlimit", lambda _which: (soft, soft))
    assert concurrency_limit(wanted, sandboxed=sandboxed) == expected


def test_loggers_of_trials_are_forgotten_and_no_others():
    table = logging.Logger.manager.loggerDict
    for name in (
        "evsys_test.one.trial-1.env",
        "evsys_test.one.trial-1",
        "evsys_test.one.trial-12",
        "evsys_test.two",
    ):
        logging.getLogger(name)
    forget_loggers(["trial-1"])
    assert sorted(name for name in table if name.startswith("evsys_test")) == [
        *("evsys_test", "evsys_test.one", "evsys_test.one.trial-12", "evsys_test.two")
    ]
    assert [child.name for child in table["evsys_test.one"].loggerMap] == ["evsys_test.one.trial-12"]
