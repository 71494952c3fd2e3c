"""The tasks of a final test are recognized under any name: in a file, in a run, and by `evsys eval`."""

from __future__ import annotations

import asyncio
import json

import pytest

from evsys import use_registry
from evsys.types import HarborTask
from evsys_record.evaluations import evaluations_on_record
from evsys_record.index import Index
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.project import project_registry
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.data.task_limit import limit_tasks
from evsys_runtime.experiment.evaluated_models import find_saved_model
from evsys_runtime.experiment.evaluation import ascore
from evsys_runtime.experiment.prior.final_tests import planned_tests

METADATA = """
metadata:
  success_metric: val.mean_reward
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 4}
    - {name: final, path: final.jsonl, max_tokens: 4, split: test}
"""
RENAMED = """
metadata:
  success_metric: fresh.mean_reward
  benchmark:
    - {name: fresh, path: renamed.jsonl, max_tokens: 4}
"""


@pytest.fixture(autouse=True)
def files(project):
    def rows(first):
        return [
            {
                "task_id": f"t{i}",
                "instruction": f"say a to {i}",
                "verifier": {"name": "exact_match", "expected": "a"},
            }
            for i in range(first, first + 15)
        ]

    project.write("tasks.jsonl", rows(0))
    project.write("final.jsonl", rows(100))
    renamed = [
        {**row, "task_id": f"x{i}", "instruction": f"{row['instruction'].upper()}!"}
        for i, row in enumerate(reversed(rows(100)))
    ]
    project.write("renamed.jsonl", renamed[:10])


def planned(project, metadata):
    plan = load_experiment(project.config(metadata=metadata))
    with Index(project.root / ".evsys" / "experiments") as index:
        index.refresh()
        return planned_tests(plan, index)


def test_a_val_entry_with_the_tasks_of_a_final_test_on_record_is_warned_of(project):
    assert planned(project, RENAMED) == []
    first = project.experiment(metadata=METADATA)
    assert not [line for line in first.run().conclusion.warnings if "final test" in line]
    (warning,) = planned(project, RENAMED)
    assert warning.startswith(
        f"benchmark 'fresh' is split: val and has the tasks of the final test 'final' of {first.record.experiment_id}"
    )
    assert planned(project, METADATA) == []
    assert warning in project.experiment(metadata=RENAMED).run().conclusion.warnings


def test_a_val_entry_with_the_tasks_of_a_test_entry_beside_it_is_warned_of(project):
    (warning,) = planned(project, METADATA.replace("path: tasks.jsonl", "path: renamed.jsonl"))
    assert warning.startswith("benchmark 'val' is split: val and has the tasks of the final test 'final':")


def test_a_limited_entry_is_compared_by_the_tasks_that_it_scores(project):
    def row(i, text):
        verifier = {"name": "exact_match", "expected": "a"}
        return {"task_id": f"m{i}", "instruction": text, "verifier": verifier}

    ids = [
        task.task_id
        for task in limit_tasks([HarborTask(task_id=f"m{i}", instruction="") for i in range(200)], 10)
    ]
    places = {task_id: place for place, task_id in enumerate(ids)}
    mixed = [
        row(i, f"say a to {100 + places[f'm{i}']}" if f"m{i}" in places else f"something else, {i}")
        for i in range(200)
    ]
    project.write("mixed.jsonl", mixed)
    limit = METADATA.replace("path: tasks.jsonl", "path: mixed.jsonl, limit: 10")
    assert len(planned(project, limit)) == 1
    assert planned(project, limit.replace("limit: 10", "limit: 10, limit_by: first")) == []


def evaluated(project, checkpoint, path):
    registry = project_registry()
    with use_registry(registry):
        scoring = ascore(
            find_saved_model(checkpoint),
            [BenchmarkConfig(path=path, max_tokens=4)],
            project_root=project.root,
            registry=registry,
            quiet=True,
        )
        return asyncio.run(scoring)


def test_an_evaluation_on_them_is_a_look_at_the_test(project):
    first = project.experiment(metadata=METADATA)
    first.run()
    (checkpoint, *_) = sorted(first.record.directory.glob("runs/*/checkpoints/*"), reverse=True)
    result = evaluated(project, checkpoint, "renamed.jsonl")
    assert [each.split for each in result.evaluations] == ["test"]
    (line,) = [line for line in result.warnings if "final test" in line]
    # The experiment scored its test before and after training.
    assert "this evaluation is on record as look 3 at it" in line
    other = evaluated(project, checkpoint, "tasks.jsonl")
    assert [each.split for each in other.evaluations] == ["val"]
    known = [each.past for each in evaluations_on_record(project.root / ".evsys" / "evaluations")]
    assert {(past.status, past.tests) for past in known} == {
        ("completed", ("renamed",)),
        ("completed", ()),
    }
    assert all(list(past.scores.values()) != [] for past in known)
    again = project.experiment(metadata=METADATA).run()
    assert again.conclusion.test_looks_before == {"final": 3}


def test_an_evaluation_of_an_earlier_version_is_listed_without_scores(project):
    first = project.experiment(metadata=METADATA)
    first.run()
    (checkpoint, *_) = sorted(first.record.directory.glob("runs/*/checkpoints/*"), reverse=True)
    evaluated(project, checkpoint, "tasks.jsonl")
    (path,) = project.root.glob(".evsys/evaluations/*/experiment.json")
    facts = json.loads(path.read_text(encoding="utf-8"))
    kept = {
        key: value for key, value in facts.items() if key not in ("scores", "benchmarks", "task_contents")
    }
    path.write_text(json.dumps(kept), encoding="utf-8")
    (known,) = evaluations_on_record(project.root / ".evsys" / "evaluations")
    assert (known.past.scores, known.entries) == ({}, ())
