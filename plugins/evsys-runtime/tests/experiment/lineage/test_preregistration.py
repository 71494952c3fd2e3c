"""The question is on record before the first step, and one that was changed when results were known says so."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from evsys.errors import ConfigError
from evsys_record.hashing import digest
from evsys_record.index import Index
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.result_schemas import validate_result

METADATA = """
metadata:
  hypothesis: it learns
  success_metric: val.mean_reward
  minimum_effect: 0.1
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 4}
    - {name: final, path: tasks.jsonl, max_tokens: 4, split: test}
"""


def facts(experiment):
    return json.loads((experiment.record.directory / "experiment.json").read_text(encoding="utf-8"))


def asked(project, *changes, extra="", **options):
    metadata = METADATA
    for old, new in changes:
        assert old in metadata
        metadata = metadata.replace(old, new)
    return project.experiment(metadata=metadata, extra=extra, **options)


def test_the_question_is_hashed_before_the_first_step(project):
    seen = {}

    def train(_cfg):
        (path,) = project.root.glob(".evsys/experiments/*/experiment.json")
        seen.update(json.loads(path.read_text(encoding="utf-8")))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked(project, train_fn=train).run()
    question = seen["preregistered"]
    assert (question["hypothesis"], question["success_metric"]) == ("it learns", "val.mean_reward")
    assert (question["direction"], question["minimum_effect"], question["baseline"]) == (
        "max",
        0.1,
        "base_model",
    )
    assert set(question["benchmarks"]) == {"val", "final"}
    assert question["benchmarks"]["val"]["hash"].startswith("sha256:")
    rest = {key: value for key, value in question.items() if key not in ("digest", "arms")}
    assert question["digest"] == digest(rest)


def test_a_question_that_is_edited_in_the_record_isnt_gone_on_with(project):
    def cut_off(_session):
        raise KeyboardInterrupt

    first = asked(project, train_fn=cut_off)
    with pytest.raises(KeyboardInterrupt):
        first.run()
    config = first.record.directory / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("0.1", "0.01"), encoding="utf-8")
    with pytest.raises(ConfigError, match="not the file that the experiment began with"):
        Experiment.resume(first.record.directory, quiet=True, train_fn=cut_off).run()


def test_the_same_arms_asked_otherwise_become_a_child_that_says_what_changed(project):
    first = asked(project)
    first.run()
    second = asked(
        project, ("minimum_effect: 0.1", "minimum_effect: 0.02"), ("it learns", "it learns a little")
    )
    result = second.run()

    assert facts(second)["parent_experiment_id"] == first.record.experiment_id
    assert facts(second)["question_changed"]["experiment_id"] == first.record.experiment_id
    assert result.conclusion.question_changed == (
        "hypothesis was 'it learns' and is 'it learns a little'",
        "minimum_effect was 0.1 and is 0.02",
    )
    said = f"the question was changed after the results of {first.record.experiment_id} were there"
    assert any(said in warning for warning in result.conclusion.warnings)
    page = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert said in page
    tree = json.loads((Path(result.directory) / "conclusion.json").read_text(encoding="utf-8"))
    validate_result(tree, "conclusion")


def test_a_child_of_a_changed_question_is_resumed(project, monkeypatch):
    first = asked(project)
    first.run()
    second = asked(project, ("minimum_effect: 0.1", "minimum_effect: 0.02"))
    with monkeypatch.context() as patch:
        patch.setattr(
            "evsys_runtime.experiment.experiment.flagged_tasks",
            lambda _session: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        with pytest.raises(KeyboardInterrupt):
            second.run()
    resumed = Experiment.resume(second.record.directory, quiet=True).run()

    assert resumed.conclusion.question_changed == ("minimum_effect was 0.1 and is 0.02",)
    assert facts(second)["parent_experiment_id"] == first.record.experiment_id


def test_the_same_question_asked_again_is_no_child_and_no_change(project):
    asked(project).run()
    again = asked(project)
    assert again.run().conclusion.question_changed == ()
    assert facts(again)["parent_experiment_id"] is None
    back = asked(project, ("minimum_effect: 0.1", "minimum_effect: 0.02"))
    back.run()
    assert asked(project).run().conclusion.question_changed == ()  # the one that was asked first


def test_other_arms_may_ask_what_they_like(project, run_text):
    asked(project).run()
    metadata = METADATA.replace("minimum_effect: 0.1", "minimum_effect: 0.02")
    other = project.experiment("run:" + run_text(("steps: 6", "steps: 5")), metadata=metadata)
    assert other.run().conclusion.question_changed == ()


def test_results_that_nobody_saw_change_nothing(project):
    def cut_off(_session):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked(project, train_fn=cut_off).run()
    result = asked(project, ("minimum_effect: 0.1", "minimum_effect: 0.02")).run()
    assert result.conclusion.question_changed == ()


def test_a_parent_that_the_file_names_stays(project):
    asked(project).run()
    child = asked(
        project, ("hypothesis: it learns", "hypothesis: it learns\n  parent_experiment_id: 20250101-000000-other"),
        ("minimum_effect: 0.1", "minimum_effect: 0.02"),
    )  # fmt: skip
    assert child.run().conclusion.question_changed == ("minimum_effect was 0.1 and is 0.02",)
    assert facts(child)["parent_experiment_id"] == "20250101-000000-other"


def test_a_fork_that_asks_otherwise_says_so(project):
    first = asked(project)
    first.run()
    fork = Experiment.fork(first.record.directory, overrides=["metadata.minimum_effect=0.3"], quiet=True)
    result = fork.run()
    assert result.conclusion.question_changed == ("minimum_effect was 0.1 and is 0.3",)


def test_changed_tasks_are_a_changed_question(project):
    asked(project).run()
    project.tasks([(f"t{i:02d}", "say a", "b") for i in range(12)])
    assert asked(project).run().conclusion.question_changed == (
        "benchmark final has other tasks",
        "benchmark val has other tasks",
    )


def test_looks_at_test_tasks_are_counted_over_all_experiments_of_the_folder(project, run_text):
    first = asked(project).run()
    assert first.conclusion.test_looks == {"final": 2}
    assert first.conclusion.test_looks_before == {}

    metadata = METADATA.replace("name: final", "name: other")  # another name, the same tasks
    text = "runs:" + "".join(
        f"\n- {run_text((('steps: 6'), f'steps: {steps}'), name=f's{steps}').strip()}" for steps in (2, 3)
    )
    second = project.experiment(text, metadata=metadata).run()
    assert second.conclusion.test_looks == {"other": 3}
    assert second.conclusion.test_looks_before == {"other": 2}
    warned = [
        line for line in second.conclusion.warnings if "test tasks of other were scored 2 times" in line
    ]
    assert warned

    third = asked(project).run()
    assert third.conclusion.test_looks_before == {"final": 5}
    page = (Path(third.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert "scored 5 times by earlier experiments" in page


def test_other_test_tasks_were_never_looked_at(project):
    asked(project).run()
    project.tasks([(f"t{i:02d}", f"say b to {100 + i}", "b") for i in range(12)])
    assert asked(project).run().conclusion.test_looks_before == {}


def test_an_index_that_cant_be_asked_costs_a_warning_and_no_result(project, monkeypatch):
    asked(project).run()

    def broken(*_arguments):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Index, "rows", broken)
    result = asked(project, ("minimum_effect: 0.1", "minimum_effect: 0.02")).run()
    assert result.status == "completed"
    assert result.conclusion.test_looks_before == {}
    assert any("earlier experiments can't be looked up" in line for line in result.warnings)
