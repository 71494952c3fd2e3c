"""An experiment has an id; people call it in other ways."""

import pytest

from evsys.errors import ConfigError
from evsys_record.experiment_names import experiment_called, folder_called, run_called
from evsys_record.index import Index


@pytest.fixture
def index(past):
    for name in ("alpha", "beta", "alpha", "gamma"):
        past.whole(name)
    past.whole("trial", dry=True)
    with Index(past.experiments) as made:
        made.refresh()
        yield made


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("20260101-123556-beta", "20260101-123556-beta"),
        ("20260101-1235", "20260101-123556-beta"),
        ("beta", "20260101-123556-beta"),
        ("last", "20260101-123756-gamma"),
        ("-1", "20260101-123756-gamma"),
        ("last-1", "20260101-123656-alpha"),
        ("-2", "20260101-123656-alpha"),
        ("-4", "20260101-123456-alpha"),
        ("trial", "20260101-123856-trial"),
    ],
)
def test_an_experiment_is_found_by_what_it_is_called(index, text, meant):
    assert experiment_called(text, index) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "alpha",
            r"'alpha' may be 2 experiments: 20260101-123656-alpha, 20260101-123456-alpha; write more of the id",
        ),
        ("2026", r"'2026' may be 5 experiments: .*; write more"),
        ("betta", r"there is no experiment 'betta' in .*; did you mean 'beta'"),
        ("lst", r"did you mean 'last'"),
        ("zzz", r"there is no experiment 'zzz' in .*; on record: 20260101-123856-trial(, [^ ]+){4}$"),
        ("", r"there is no experiment ''"),
        ("-5", r"there is no experiment -5: only 4 are on record"),
        ("last-9", r"there is no experiment -10: only 4 are on record"),
    ],
)
def test_what_is_not_there_or_not_one_is_refused_with_what_comes_close(index, text, said):
    with pytest.raises(ConfigError, match=said):
        experiment_called(text, index)


def test_where_nothing_is_on_record_that_is_said(past):
    with Index(past.experiments) as index:
        index.refresh()
        with pytest.raises(ConfigError, match="nothing is on record yet"):
            experiment_called("alpha", index)
        with pytest.raises(
            ConfigError,
            match="there is no 'last': no experiment is on record here; `evsys run CONFIG` makes one",
        ):
            experiment_called("last", index)


def test_a_path_names_the_record_that_it_is_in(past, monkeypatch):
    record = past.whole()
    whole = (record.directory, None)
    assert folder_called(str(record.directory)) == whole
    assert folder_called(str(record.directory / "runs")) == whole
    assert folder_called(str(record.directory / "runs" / "a-s0" / "run.json")) == (record.directory, "a-s0")
    monkeypatch.chdir(record.directory)
    assert folder_called("runs/a-s0") == (record.directory, "a-s0")
    assert folder_called(".") == whole
    monkeypatch.chdir(past.experiments)
    assert folder_called(record.experiment_id) == whole
    assert folder_called("nothing") is None
    assert folder_called("no/such/folder") is None


@pytest.mark.parametrize(("text", "meant"), [("a-s0", "a-s0"), ("a-s1", "a-s1"), ("b", "b-s0")])
def test_a_run_is_found_by_its_name_or_how_it_begins(text, meant):
    assert run_called(text, ["a-s0", "a-s1", "b-s0"], "e") == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "'a' may be 2 runs of e: a-s0, a-s1; write more of the name"),
        ("a-s", "may be 2 runs"),
        ("aa-s0", "e has no run 'aa-s0'; did you mean 'a-s0'"),
        ("zzzz", "e has no run 'zzzz'; on record: a-s0, a-s1"),
    ],
)
def test_a_run_that_is_not_there_or_not_one_is_refused(text, said):
    with pytest.raises(ConfigError, match=said):
        run_called(text, ["a-s0", "a-s1"], "e")
