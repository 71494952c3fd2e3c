import errno
import os
from pathlib import Path

import pytest

from evsys.errors import ConfigError, DataError, StoreError
from evsys_runtime.data.stored_data import cache_folders
from evsys_runtime.data.workspace import Workspace


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


def dataset(workspace, text, name="faq", version="v1", split="train"):
    folder = workspace.root / "data" / "datasets" / name / version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    (folder / "metadata.yaml").write_text("licence: CC0\n", encoding="utf-8")
    return folder


def tasks(workspace, text, name="faq", kind="benchmark"):
    folder = workspace.root / "data" / kind / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tasks.jsonl").write_text(text, encoding="utf-8")
    return folder


def test_a_name_means_the_newest_version(workspace):
    for version in ("v1", "v2", "v10"):
        dataset(workspace, f'{{"version": "{version}"}}\n', version=version)
    assert list(workspace.pull_dataset("faq").rows()) == [{"version": "v10"}]
    assert list(workspace.pull_dataset("faq/v2").rows()) == [{"version": "v2"}]
    assert workspace.datasets() == ["faq"]


def test_a_store_that_rows_can_not_be_pulled_from_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"store: expected an object with a method `pull\(ref\)`, got int object"
    ):
        Workspace(tmp_path, store=3)


def test_splits_are_apart(workspace):
    dataset(workspace, '{"a": 1}\n')
    dataset(workspace, '{"a": 2}', split="test")
    assert list(workspace.pull_dataset("faq").rows()) == [{"a": 1}]
    assert list(workspace.pull_dataset("faq", split="test").rows()) == [{"a": 2}]


def test_the_lineage_says_where_rows_came_from(workspace):
    dataset(workspace, '{"a": 1}\n')
    lineage = workspace.pull_dataset("faq").lineage
    assert lineage["path"] == "data/datasets/faq/v1/train.jsonl"
    assert (lineage["source"], lineage["version"], lineage["split"]) == ("project", 1, "train")
    assert lineage["metadata"].startswith("sha256:")


def test_what_was_used_once_is_found_when_the_projects_data_is_gone(workspace, tmp_path):
    dataset(workspace, '{"a": 1}\n')
    first = workspace.pull_dataset("faq")
    dataset(workspace, '{"a": 2}\n', version="v2")
    second = workspace.pull_dataset("faq")
    tasks(workspace, '{"task_id": "1"}\n')
    benchmark = workspace.pull_benchmark("faq")
    (tmp_path / "data").rename(tmp_path / "gone")
    assert workspace.pull_dataset(first.id) == workspace.pull_dataset("faq/v1") == first
    assert workspace.pull_dataset("faq") == second
    assert workspace.pull_benchmark(benchmark.id) == workspace.pull_benchmark("faq") == benchmark


def test_what_a_store_gave_is_found_by_name_and_id(workspace):
    entry = workspace.cache("datasets").put("remote", [{"a": 1}], {"source": "store"}, id="ds_1")
    assert workspace.pull_dataset("remote") == workspace.pull_dataset("ds_1") == entry


def test_the_projects_own_data_comes_before_a_name_that_was_pulled(workspace):
    workspace.cache("datasets").put("faq", [{"from": "store"}])
    dataset(workspace, '{"from": "project"}\n')
    assert list(workspace.pull_dataset("faq").rows()) == [{"from": "project"}]


def test_a_version_that_changed_is_refused(workspace):
    dataset(workspace, '{"a": 1}\n')
    entry = workspace.pull_dataset("faq")
    dataset(workspace, '{"a": 2}\n')
    with pytest.raises(DataError, match=r"faq/v1/train isn't what it was.*put the changed rows into faq/v2/"):
        workspace.pull_dataset("faq")
    assert [each.id for each in workspace.cache("datasets").entries()] == [entry.id]
    assert list(workspace.pull_dataset(entry.id).rows()) == [{"a": 1}]
    dataset(workspace, '{"a": 1}\n')
    assert workspace.pull_dataset("faq") == entry


def test_a_version_that_is_only_written_otherwise_is_the_same(workspace):
    dataset(workspace, '{"a": 1}\n')
    entry = workspace.pull_dataset("faq")
    dataset(workspace, '\n{"a":1}')
    assert workspace.pull_dataset("faq") == entry


def test_a_malformed_row_is_told_with_its_file_and_physical_line(workspace):
    dataset(workspace, '{"a": 1}\n\n[]\n')
    with pytest.raises(DataError) as caught:
        workspace.pull_dataset("faq")
    assert (caught.value.source, caught.value.line) == ("data/datasets/faq/v1/train.jsonl", 3)


@pytest.mark.parametrize(
    "text", ['{"a": 1}\n{"a":', '{"a": 1}\n{"a": NaN}\n', '{"a": 1}\n{"a": 1, "a": 2}\n']
)
def test_rows_by_name_are_judged_as_strictly_as_rows_by_path(workspace, text):
    dataset(workspace, text)
    with pytest.raises(DataError) as caught:
        workspace.pull_dataset("faq")
    assert caught.value.line == 2


def test_finding_a_dataset_writes_nothing(workspace):
    folder = dataset(workspace, '{"a": 1}\n')
    assert workspace.find_dataset("faq") == folder / "train.jsonl"
    assert not workspace.state.exists()
    with pytest.raises(DataError, match="did you mean 'faq'"):
        workspace.find_dataset("fqa")
    entry = workspace.cache("datasets").put("remote", [{"a": 1}])
    assert workspace.find_dataset("remote") == workspace.find_dataset(entry.id) == entry.path


# --- a project that can't be written ------------------------------------------------------------------------------------


@pytest.fixture
def read_only(workspace, monkeypatch):
    """The project's folders can't be made; what is there already can be read."""
    real = Path.mkdir

    def refuse(path, *arguments, **options):
        if workspace.root in path.parents and not path.is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        real(path, *arguments, **options)

    def forbid():
        monkeypatch.setattr(Path, "mkdir", refuse)

    monkeypatch.setenv("EVSYS_CACHE", f"{workspace.root}-cache")
    return forbid


def test_data_of_a_read_only_project_is_kept_in_the_users_cache_and_told_where(workspace, read_only):
    dataset(workspace, '{"a": 1}\n')
    told = []
    read_only()
    mine = Workspace(workspace.root, tell=told.append)
    entry = mine.pull_dataset("faq")
    assert Path(f"{workspace.root}-cache", "projects") in entry.path.parents
    assert not workspace.state.exists()
    (message,) = told
    kept = entry.directory.parent.parent
    assert message == f"{workspace.state}/cache can't be written; data is kept in {kept} instead"
    assert mine.pull_dataset("faq") == mine.cache().get("faq/v1/train") == entry
    assert len(told) == 1
    assert Workspace(workspace.root).pull_dataset(entry.id) == entry


def test_what_the_cache_of_a_read_only_project_holds_is_used_as_it_is(workspace, read_only):
    dataset(workspace, '{"a": 1}\n')
    entry = workspace.pull_dataset("faq")
    read_only()
    told = []
    mine = Workspace(workspace.root, tell=told.append)
    assert mine.pull_dataset("faq") == mine.pull_dataset(entry.id) == entry
    assert told == []
    newer = mine.cache().put("faq/v1/train", [{"a": 2}])
    assert newer.directory.parent != entry.directory.parent
    assert Workspace(workspace.root).cache().get("faq/v1/train") == newer
    assert [each.id for each in mine.cache().entries()] == sorted([entry.id, newer.id])


def test_two_projects_of_one_name_do_not_share_a_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path / "users-cache"))
    folders = {cache_folders(tmp_path / place / "lab", "datasets")[1] for place in ("a", "b")}
    assert len(folders) == 2
    assert all(folder.parent.name.startswith("lab-") for folder in folders)


@pytest.mark.parametrize("name", ["faq/v7", "faq/latest", "faq/../faq"])
def test_a_version_that_is_not_there_is_named(workspace, name):
    dataset(workspace, '{"a": 1}\n')
    with pytest.raises(DataError, match="dataset 'faq' has no"):
        workspace.pull_dataset(name)


def test_an_unknown_name_lists_what_is_known(workspace):
    dataset(workspace, '{"a": 1}\n')
    workspace.cache("datasets").put("remote", [{"a": 1}])
    with pytest.raises(DataError, match=r"no dataset 'fag' .*known: faq, remote"):
        workspace.pull_dataset("fag")
    with pytest.raises(DataError, match=r"no benchmark 'fag' .*none yet"):
        workspace.pull_benchmark("fag")


def test_a_benchmark_is_found_in_both_folders(workspace):
    tasks(workspace, '{"task_id": "1"}\n')
    tasks(workspace, '{"task_id": "2"}\n', name="quick", kind="validation")
    assert list(workspace.pull_benchmark("faq").rows()) == [{"task_id": "1"}]
    assert list(workspace.pull_benchmark("quick").rows()) == [{"task_id": "2"}]
    assert workspace.pull_benchmark("validation/quick") == workspace.pull_benchmark("quick")


def test_a_name_in_both_folders_must_be_qualified(workspace):
    tasks(workspace, '{"task_id": "1"}\n')
    tasks(workspace, '{"task_id": "2"}\n', kind="validation")
    with pytest.raises(DataError, match="write benchmark/faq or validation/faq"):
        workspace.pull_benchmark("faq")
    assert list(workspace.pull_benchmark("validation/faq").rows()) == [{"task_id": "2"}]


def test_changed_tasks_get_a_new_id(workspace):
    tasks(workspace, '{"task_id": "1"}\n')
    old = workspace.pull_benchmark("faq")
    tasks(workspace, '{"task_id": "2"}\n')
    new = workspace.pull_benchmark("faq")
    assert new.id != old.id
    assert list(workspace.pull_benchmark(old.id).rows()) == [{"task_id": "1"}]


def test_a_corrupt_cache_is_told(workspace):
    tasks(workspace, '{"task_id": "1"}\n')
    entry = workspace.pull_benchmark("faq")
    entry.path.chmod(0o644)
    entry.path.write_text('{"task_id": "9"}\n', encoding="utf-8")
    for name in ("faq", entry.id):
        with pytest.raises(StoreError, match="is corrupt"):
            workspace.pull_benchmark(name)


def test_an_entry_that_is_incomplete_says_what_to_remove(workspace):
    dataset(workspace, '{"a": 1}\n')
    entry = workspace.pull_dataset("faq")
    assert entry.ingredients == {"file": entry.lineage["file"], "version": 1, "split": "train"}
    manifest = entry.directory / "manifest.json"
    manifest.write_text(
        manifest.read_text(encoding="utf-8").replace('"complete": true', '"complete": false'),
        encoding="utf-8",
    )
    with pytest.raises(StoreError, match=f"{entry.id} is incomplete or was removed; remove .*{entry.id}"):
        workspace.pull_dataset(entry.id)


class _Mended:
    """Answers wrongly once, then rightly."""

    def __init__(self, wrong):
        self.answers = [wrong, [{"prompt": "a", "completion": "b"}]]

    def pull(self, ref):
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "the store has no rows for 'fresh'"),
        ([{"prompt": object()}], "row 0 that the store has for 'fresh' isn't JSON"),
    ],
)
def test_a_wrong_answer_of_a_store_is_not_kept(tmp_path, wrong, message):
    (tmp_path / ".evsys").mkdir()
    workspace = Workspace(tmp_path, store=_Mended(wrong))
    with pytest.raises(DataError, match=message):
        workspace.pull_dataset("fresh")
    assert list(workspace.pull_dataset("fresh").rows()) == [{"prompt": "a", "completion": "b"}]


TASK = {"task_id": "1", "instruction": "a", "verifier": {"name": "exact", "expected": "b"}}


def test_rows_of_a_store_that_are_no_tasks_are_not_kept_as_a_benchmark(tmp_path):
    (tmp_path / ".evsys").mkdir()
    store = _Mended([{"error": "too many requests"}])
    store.answers[1] = [TASK]
    workspace = Workspace(tmp_path, store=store)
    with pytest.raises(DataError, match="(?s)the store's rows:1: .*no `task_id`"):
        workspace.pull_benchmark("fresh")
    assert list(workspace.pull_benchmark("fresh").rows()) == [TASK]


def test_rows_that_transforms_make_tasks_of_are_kept_if_asked(tmp_path):
    (tmp_path / ".evsys").mkdir()
    workspace = Workspace(tmp_path, store=_Mended([{"question": "a"}]))
    assert list(workspace.pull_benchmark("fresh", raw=True).rows()) == [{"question": "a"}]
