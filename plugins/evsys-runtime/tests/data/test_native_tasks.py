"""Folders of native Harbor tasks as benchmarks."""

from pathlib import Path

import pytest
from task_files import native_task, write_tasks

from evsys.errors import DataError
from evsys_runtime.data.benchmark import load_tasks
from evsys_runtime.data.native_tasks import TaskProblem, native_folders, read_native

TWO_STEPS = {"first": "exit 0\n", "second": "exit 0\n"}


def suite(root: Path, *names: str) -> Path:
    for name in names:
        native_task(root / name, instruction=f"Do {name}.", settings='[metadata]\nlevel = "easy"\n')
    return root


def test_a_folder_of_tasks_is_a_benchmark_as_it_stands(tmp_path):
    tasks, content_hash = load_tasks(suite(tmp_path / "suite", "b", "a"))
    assert [(task.task_id, task.instruction, task.verifier) for task in tasks] == [
        ("a", "Do a.", None),
        ("b", "Do b.", None),
    ]
    assert tasks[0].metadata == {"level": "easy"}
    assert tasks[0].path == str(tmp_path / "suite" / "a")
    assert content_hash.startswith("sha256:")


def test_a_single_task_is_a_benchmark_too(tmp_path):
    tasks, _ = load_tasks(suite(tmp_path, "only") / "only")
    assert [task.task_id for task in tasks] == ["only"]


def test_a_task_of_several_steps_names_them(tmp_path):
    native_task(tmp_path / "suite" / "long", instruction="Go on.", steps=TWO_STEPS)
    [task], _ = load_tasks(tmp_path / "suite")
    assert task.metadata == {"steps": ["first", "second"]}
    assert task.instruction == "Go on.\n\nGo on."


def test_other_folders_and_files_beside_the_tasks_are_none(tmp_path):
    suite(tmp_path, "a")
    (tmp_path / ".git").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("about", encoding="utf-8")
    assert [folder.name for folder in native_folders(tmp_path)] == ["a"]


def test_a_folder_with_a_file_of_tasks_is_that_file(tmp_path):
    suite(tmp_path, "a")
    write_tasks(tmp_path / "tasks.jsonl", [{"task_id": "row", "instruction": "x", "verifier": {"name": "v"}}])
    assert [task.task_id for task in load_tasks(tmp_path)[0]] == ["row"]


def test_dates_in_metadata_are_text(tmp_path):
    native_task(tmp_path / "a", settings="[metadata]\nmade = 2026-01-02\nparts = [{at = 07:32:00}]\n")
    assert read_native(tmp_path / "a").task.metadata == {"made": "2026-01-02", "parts": [{"at": "07:32:00"}]}


# --- the hash -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda task: (task / "tests" / "test.sh").write_text("exit 1\n", encoding="utf-8"),
        lambda task: (task / "tests" / "test.sh").chmod(0o755),
        lambda task: (task / "instruction.md").write_text("Other.", encoding="utf-8"),
        lambda task: (
            (task / "environment").mkdir() or (task / "environment" / "x").write_text("", encoding="utf-8")
        ),
        lambda task: (task / "link").symlink_to("instruction.md"),
        lambda task: task.rename(task.with_name("renamed")),
    ],
)
def test_the_hash_changes_with_every_file_of_every_task(tmp_path, change):
    root = suite(tmp_path, "a", "b")
    _, before = load_tasks(root)
    change(root / "a")
    assert load_tasks(root)[1] != before


def test_the_hash_is_the_same_elsewhere_and_with_caches_beside_the_files(tmp_path):
    one, other = suite(tmp_path / "one", "a"), suite(tmp_path / "other", "a")
    (other / "a" / "__pycache__").mkdir()
    (other / "a" / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert load_tasks(one)[1] == load_tasks(other)[1]


# --- what is wrong ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "file", "line", "said"),
    [
        (lambda t: (t / "task.toml").write_text("a = 1\nb = \n", encoding="utf-8"), "task.toml", 2, "broken TOML"),
        (lambda t: (t / "task.toml").write_text("a = [\n", encoding="utf-8"), "task.toml", None, "broken TOML"),
        (lambda t: (t / "task.toml").unlink(), "task.toml", None, "the task has no task.toml"),
        (lambda t: (t / "task.toml").write_text("metadata = 3\n", encoding="utf-8"), "task.toml", None, "'metadata' is not a table"),
        (lambda t: (t / "task.toml").write_text("steps = 3\n", encoding="utf-8"), "task.toml", None, "not an array of tables"),
        (lambda t: (t / "task.toml").write_text('[[steps]]\nname = "../up"\n', encoding="utf-8"), "task.toml", None, "a step is called '../up'"),
        (lambda t: (t / "task.toml").write_text('[[steps]]\nname = "gone"\n', encoding="utf-8"), "steps/gone", None, "step 'gone' has no folder"),
        (lambda t: (t / "task.toml").write_text('[[steps]]\nname = "a"\nverifier = 3\n', encoding="utf-8"), "task.toml", None, "not a table"),
        (lambda t: (t / "task.toml").write_bytes(b"\xff\xfe"), "task.toml", None, "can't be read"),
        (lambda t: (t / "instruction.md").unlink(), "instruction.md", None, "the task has no instruction.md"),
        (lambda t: (t / "tests" / "test.sh").unlink(), "tests/test.sh", None, "the task has no test script"),
    ],
)  # fmt: skip
def test_each_fault_names_its_file_and_where_it_can_its_line(tmp_path, spoil, file, line, said):
    task = native_task(tmp_path / "suite" / "a")
    spoil(task)
    with pytest.raises(TaskProblem, match=said) as caught:
        read_native(task)
    assert (caught.value.file.relative_to(task).as_posix(), caught.value.line) == (file, line)


def test_two_steps_of_one_name_are_refused(tmp_path):
    task = native_task(tmp_path / "a", steps={"one": "exit 0\n"})
    text = (task / "task.toml").read_text(encoding="utf-8")
    (task / "task.toml").write_text(text + '[[steps]]\nname = "one"\n', encoding="utf-8")
    with pytest.raises(TaskProblem, match="two steps have the same name"):
        read_native(task)


def test_all_broken_tasks_are_told_at_once(tmp_path, monkeypatch):
    root = suite(tmp_path / "suite", "a", "b", "c")
    (root / "a" / "task.toml").write_text("x =\n", encoding="utf-8")
    (root / "c" / "tests" / "test.sh").unlink()
    with pytest.raises(DataError) as caught:
        load_tasks("suite", project_root=tmp_path)
    assert (caught.value.source, caught.value.line) == ("suite/a/task.toml", 1)
    assert "the benchmark has 2 problems" in str(caught.value)
    assert "suite/c/tests/test.sh: the task has no test script" in str(caught.value)


def test_a_task_without_settings_among_tasks_is_broken_and_not_left_out(tmp_path):
    root = suite(tmp_path / "suite", "a", "b")
    (root / "b" / "task.toml").unlink()
    with pytest.raises(DataError, match=r"suite/b/task.toml: the task has no task.toml"):
        load_tasks("suite", project_root=tmp_path)


def test_ids_that_differ_only_in_punctuation_are_refused(tmp_path):
    with pytest.raises(DataError, match="differs only in punctuation"):
        load_tasks(suite(tmp_path, "a-b", "a_b"))


def test_transforms_of_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="takes no transforms"):
        load_tasks(suite(tmp_path, "a"), transforms=[{"kind": "identity"}])


def test_tests_in_an_image_of_the_verifiers_own_need_no_script(tmp_path):
    task = native_task(tmp_path / "a", settings='[verifier]\nenvironment_mode = "separate"\n')
    (task / "tests" / "test.sh").unlink()
    assert read_native(task).task.task_id == "a"


# --- rows that name folders ---------------------------------------------------------------------------------------------------


def test_a_row_may_name_a_folder_and_say_more_about_it(tmp_path):
    suite(tmp_path / "suite", "a")
    row = {
        "task_id": "mine",
        "path": "suite/a",
        "verifier": {"name": "v"},
        "metadata": {"level": "hard", "x": 1},
    }
    [task], _ = load_tasks([row], project_root=tmp_path)
    assert (task.task_id, task.instruction, task.path) == ("mine", "Do a.", str(tmp_path / "suite" / "a"))
    assert task.metadata == {"level": "hard", "x": 1}
    assert task.verifier.name == "v"


def test_a_row_whose_folder_is_broken_has_both_places(tmp_path):
    suite(tmp_path / "suite", "a")
    (tmp_path / "suite" / "a" / "task.toml").write_text("x =\n", encoding="utf-8")
    file = write_tasks(tmp_path / "tasks.jsonl", [{"task_id": "mine", "path": "suite/a"}])
    with pytest.raises(DataError, match=r"line 1: suite/a/task.toml:1: broken TOML"):
        load_tasks(file, project_root=tmp_path)


def test_the_hash_of_rows_changes_with_their_folders(tmp_path):
    suite(tmp_path / "suite", "a")
    row = {"task_id": "mine", "path": "suite/a"}
    _, before = load_tasks([row], project_root=tmp_path)
    (tmp_path / "suite" / "a" / "instruction.md").write_text("Other.", encoding="utf-8")
    assert load_tasks([row], project_root=tmp_path)[1] != before
