import json
import os

import pytest

from evsys.errors import StoreError
from evsys_record.attempts import Attempt
from evsys_record.checkpoints import CheckpointFiles
from evsys_record.jsonl import read_jsonl


@pytest.fixture
def files(tmp_path):
    return CheckpointFiles(tmp_path)


def save(files, step, attempt=1, text="weights"):
    folder = files.begin(step)
    (folder / "adapter").mkdir()
    (folder / "adapter" / "weights.bin").write_text(text, encoding="utf-8")
    return files.commit(folder, step=step, attempt=attempt, manifest={"loop": {"row": step}})


def test_a_saved_checkpoint_is_listed_with_its_manifest_and_files(files, tmp_path):
    made = save(files, 10)
    (entry,) = files.complete()
    assert entry == made
    assert (entry.step, entry.attempt, entry.manifest) == (10, 1, {"loop": {"row": 10}})
    assert entry.directory == tmp_path / "checkpoints" / "10"
    assert list(entry.files) == ["adapter/weights.bin"]
    entry.verify()
    (line,) = read_jsonl(tmp_path / "checkpoints.jsonl")
    assert (line["attempt"], line["step"], line["seq"], line["name"], line["bytes"]) == (1, 10, 0, "10", 7)


def test_every_file_reaches_the_disk_before_the_checkpoint_has_its_name(files, tmp_path, monkeypatch):
    synced = []

    def fsync(descriptor):
        named = (tmp_path / "checkpoints" / "10").exists()
        synced.append((os.fstat(descriptor).st_ino, named))

    monkeypatch.setattr(os, "fsync", fsync)
    save(files, 10)
    for path in (tmp_path / "checkpoints" / "10").rglob("*"):
        if path.is_file():
            assert (path.stat().st_ino, False) in synced
    assert ((tmp_path / "checkpoints").stat().st_ino, True) in synced


def test_folders_without_a_manifest_are_not_listed_and_temporary_ones_are_cleaned(files, tmp_path):
    save(files, 10)
    torn = files.begin(20)
    (torn / "half").write_text("x", encoding="utf-8")
    (tmp_path / "checkpoints" / "30").mkdir()
    assert [entry.step for entry in files.complete()] == [10]
    assert files.recover() == [torn]
    assert not torn.exists()
    assert (tmp_path / "checkpoints" / "30").exists()


def test_a_whole_checkpoint_whose_line_was_lost_is_listed_again(files, tmp_path):
    save(files, 10)
    save(files, 20)
    log = tmp_path / "checkpoints.jsonl"
    first = log.read_bytes().splitlines(keepends=True)[0]
    log.write_bytes(first + b'{"attempt":1,"st')
    assert [entry.step for entry in files.complete()] == [10]
    assert files.recover() == []
    assert [entry.step for entry in files.complete()] == [10, 20]


def test_another_attempts_checkpoint_of_the_same_step_is_kept(files, tmp_path):
    save(files, 10, attempt=1, text="first")
    save(files, 10, attempt=2, text="second")
    save(files, 10, attempt=2, text="third")
    names = [entry.directory.name for entry in files.complete()]
    assert names == ["10", "10-a2", "10-a2-2"]
    assert (tmp_path / "checkpoints" / "10" / "adapter" / "weights.bin").read_text(
        encoding="utf-8"
    ) == "first"
    assert files.latest().attempt == 2


def test_checkpoints_of_a_lineage_that_was_left_behind_are_passed_over(files):
    attempts = [Attempt(n=1), Attempt(n=2, parent=1, from_step=10), Attempt(n=3, parent=1, from_step=20)]
    for step in (10, 20, 30):
        save(files, step)
    save(files, 40, attempt=2)
    assert [entry.step for entry in files.complete(attempts)] == [10, 20]
    assert files.latest(attempts).step == 20
    assert files.latest(attempts[:2]).step == 40
    assert files.latest(attempts[:1]).step == 30


def test_without_checkpoints_there_is_no_latest(files):
    assert files.latest() is None
    assert files.recover() == []


def test_changed_and_missing_files_are_found(files):
    save(files, 10)
    entry = files.latest()
    path = entry.directory / "adapter" / "weights.bin"
    path.write_text("other", encoding="utf-8")
    with pytest.raises(StoreError, match=r"weights\.bin has changed .*resume from an earlier checkpoint"):
        entry.verify()
    path.unlink()
    with pytest.raises(StoreError, match="is missing"):
        entry.verify()


def test_a_removed_checkpoint_is_no_longer_listed_and_its_line_stays(files, tmp_path):
    save(files, 10)
    save(files, 20)
    files.remove(files.complete()[0].directory)
    assert [entry.step for entry in files.complete()] == [20]
    assert len(list(read_jsonl(tmp_path / "checkpoints.jsonl"))) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"format": 1, "step": 10}', "lacks 'attempt'"),
        ('{"format": 1, "step": 10, "att', "isn't JSON"),
        ('{"format": 1, "step": "10", "attempt": 1, "manifest": {}, "files": {}}', "holds no step"),
    ],
)
def test_a_checkpoint_whose_manifest_is_damaged_is_passed_over_and_named(files, tmp_path, text, problem):
    save(files, 10)
    save(files, 20)
    assert files.damaged() == []
    (tmp_path / "checkpoints" / "20" / "manifest.json").write_text(text, encoding="utf-8")
    assert [entry.step for entry in files.complete()] == [10]
    assert files.latest().step == 10
    [error] = files.damaged()
    assert f"20/manifest.json {problem}" in error.message
    (tmp_path / "checkpoints.jsonl").unlink()  # its line was lost, too
    assert files.recover() == []
    assert [entry.step for entry in files.complete()] == [10]


@pytest.mark.parametrize(
    "name",
    ["../../../authorized_keys", "/etc/passwd", "a/../../b", "a\\b", "C:/x", "", ".", "a//b", "link/b"],
)
def test_a_manifest_that_names_a_file_outside_its_checkpoint_is_damaged(files, tmp_path, name):
    folder = save(files, 10).directory
    (folder / "link").symlink_to(tmp_path)
    path = folder / "manifest.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree["files"] = {name: {"bytes": 1, "sha256": "sha256:0"}}
    path.write_text(json.dumps(tree), encoding="utf-8")
    assert files.complete() == []
    (problem,) = files.damaged()
    assert repr(name) in str(problem)


@pytest.mark.parametrize(
    "facts", [None, {"bytes": -1, "sha256": "x"}, {"bytes": 1}, {"bytes": True, "sha256": "x"}]
)
def test_a_manifest_without_sizes_and_hashes_is_damaged(files, facts):
    path = save(files, 10).directory / "manifest.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree["files"] = {"adapter/weights.bin": facts}
    path.write_text(json.dumps(tree), encoding="utf-8")
    assert files.complete() == []
    assert len(files.damaged()) == 1
