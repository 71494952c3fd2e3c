"""A benchmark's file to its tasks."""

import json

import pytest

from evsys import Registry
from evsys.errors import DataError
from evsys_runtime.data.benchmark import load_tasks


def task(task_id, **changes):
    return {
        "task_id": task_id,
        "instruction": f"Do {task_id}.",
        "verifier": {"name": "exact_match", "expected": "x"},
        **changes,
    }


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8"
    )
    return path


def test_a_file_and_the_folder_that_holds_it_mean_the_same(tmp_path):
    path = write(tmp_path / "sums" / "tasks.jsonl", [task("a"), task("b")])
    (tmp_path / "sums" / "metadata.yaml").write_text("name: sums\n", encoding="utf-8")
    tasks, content_hash = load_tasks(path)
    assert [found.task_id for found in tasks] == ["a", "b"]
    assert load_tasks(tmp_path / "sums") == (tasks, content_hash)
    assert load_tasks("sums", project_root=tmp_path) == (tasks, content_hash)
    assert load_tasks([task("a"), task("b")]) == (tasks, content_hash)


def test_the_hash_is_of_what_tasks_say(tmp_path):
    _, first = load_tasks([task("a"), task("b")])
    spaced = tmp_path / "tasks.json"
    spaced.write_text(
        json.dumps([dict(reversed(task(name).items())) for name in "ab"], indent=3), encoding="utf-8"
    )
    assert first.startswith("sha256:")
    assert load_tasks(spaced)[1] == first
    assert load_tasks([task("b"), task("a")])[1] != first
    assert load_tasks([task("a"), task("b", topic="new")])[1] != first


def test_of_thousands_of_problems_some_are_told_and_the_others_counted(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task_id": "a"}\n' * 3000, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_tasks(path)
    told = str(caught.value).splitlines()
    assert told[0] == f"{path}:1: the benchmark has 3000 problems:"
    assert told[1].startswith("  line 1: task 'a': no `instruction`")
    assert "(and 2,999 more tasks like it)" in told[1]
    assert len(told) == 2
    path.write_text("".join(f'{{"task_id": "{n}"}}\n' for n in range(3000)), encoding="utf-8")
    with pytest.raises(DataError, match=r"line 3: .*\(and 2,997 more tasks like it\)") as caught:
        load_tasks(path)
    assert len(str(caught.value).splitlines()) == 4


def test_every_problem_of_the_file_is_told_with_its_line(tmp_path):
    rows = [
        task("a"),
        "",
        "{broken",
        task("a"),
        task("b/1"),
        task("b.1"),
        {"instruction": "x"},
        task("c", verifier=None),
        task("d", verifier={"name": "x", "expcted": 1}),
        "[]",
        task("ok"),
    ]
    path = write(tmp_path / "tasks.jsonl", rows)
    with pytest.raises(DataError) as caught:
        load_tasks(path)
    error = caught.value
    assert (error.source, error.line, error.facts["problems"]) == (str(path), 3, 7)
    listed = str(error).splitlines()
    assert listed[0] == f"{path}:3: the benchmark has 7 problems:"
    for line, (number, text) in zip(
        listed[1:],
        [
            (3, "not valid JSON"),
            (4, "task_id 'a' comes again, first in line 1"),
            (6, "task_id 'b.1' differs only in punctuation from 'b/1' in line 5"),
            (7, "no `task_id`"),
            (8, "task 'c': no `verifier`"),
            (9, "task 'd': `verifier` has an unknown key 'expcted'"),
            (10, "a row must be an object"),
        ],
        strict=True,
    ):
        assert line.startswith(f"  line {number}: {text}")


def test_ids_that_differ_in_more_than_punctuation_are_different():
    tasks, _ = load_tasks([task("1-11"), task("11-1"), task("v1.2"), task("v12"), task("++"), task("--")])
    assert len(tasks) == 6


def test_given_rows_are_named_by_number():
    with pytest.raises(
        DataError, match=r"the benchmark has a problem:\n  row 1: task_id 'a' comes again, first in row 0"
    ):
        load_tasks([task("a"), task("a")])


def test_no_tasks_is_an_error(tmp_path):
    with pytest.raises(DataError, match="tasks: holds no tasks"):
        load_tasks([])
    with pytest.raises(DataError, match="is empty"):
        load_tasks(write(tmp_path / "tasks.jsonl", []))
    with pytest.raises(DataError, match="no such file"):
        load_tasks(tmp_path / "nothing.jsonl")
    (tmp_path / "folder" / "v1").mkdir(parents=True)
    with pytest.raises(DataError, match=r"the folder has no tasks\.jsonl; it has v1"):
        load_tasks(tmp_path / "folder")


def test_a_name_takes_the_place_of_the_path_in_messages(tmp_path):
    with pytest.raises(DataError, match=r"^held_out:1: the benchmark has a problem"):
        load_tasks(write(tmp_path / "tasks.jsonl", [{"x": 1}, task("a")]), name="held_out")


def test_transforms_make_tasks_of_other_rows(tmp_path):
    registry = Registry(entry_points=())

    def to_task(rows):
        for row in rows:
            yield task(row["question"])

    registry.register("transform", "to_task", to_task)
    path = tmp_path / "rows.csv"
    path.write_text("question\none\ntwo\n", encoding="utf-8")
    tasks, _ = load_tasks(path, transforms=[{"kind": "to_task"}], registry=registry)
    assert [found.task_id for found in tasks] == ["one", "two"]
