"""A run with a teacher: prepared beside the model, on record, part of what the run is, and gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from evsys.errors import ConfigError
from evsys_backend_mock import MockBackend
from evsys_record.files import read_json
from evsys_runtime.experiment import Experiment

OPD = """
  data: {source_kind: jsonl, path: train.jsonl}
  model: {name: evsys/tiny}
  algorithm:
    kind: opd
    params: {learning_rate: 0.003, steps: 3, batch_size: 4, lora_rank: 4, max_tokens: 6, group_size: 2}
  backend: {kind: mock}
  teacher: {model: {name: evsys/tiny, init_from_checkpoint: FOLDER}}
"""


@pytest.fixture
def teacher(project) -> str:
    """The checkpoint of another experiment, trained with another rank than the student is."""
    result = project.experiment(f"run:{RUN_OF_RANK_8}").run()
    folder = Path(result.directory) / "runs/run-s0" / result.arms[0].run.final_checkpoint
    return str(folder.relative_to(project.root))


RUN_OF_RANK_8 = """
  data: {source_kind: jsonl, path: train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.02, steps: 6, batch_size: 4, lora_rank: 8}}
  backend: {kind: mock}
"""


def distilled(project, folder: str, **options) -> Experiment:
    return project.experiment(f"run:{OPD.replace('FOLDER', folder)}", **options)


def facts(result) -> dict:
    return read_json(Path(result.directory) / "runs/run-s0/run.json")


def test_a_checkpoint_of_another_experiment_teaches(project, teacher):
    result = distilled(project, teacher).run()
    (arm,) = result.arms
    assert (arm.status, arm.run.steps) == ("completed", 3)
    assert arm.run.metrics["reverse_kl"] != 0.0
    assert arm.run.metrics["teacher_tokens_total"] > 0
    role = facts(result)["roles"]["teacher"]
    assert (role["model"], role["backend"], role["weights"]) == ("evsys/tiny", "mock", teacher)
    kept = read_json(project.root / teacher / "manifest.json")["files"]
    assert role["files"] == {name: each["sha256"] for name, each in kept.items()}
    assert (Path(result.directory) / "runs/run-s0/teacher").is_dir()


def test_what_the_teacher_is_belongs_to_what_the_run_is(project, teacher):
    with_teacher = distilled(project, teacher).run()
    other = project.experiment(f"run:{RUN_OF_RANK_8.replace('steps: 6', 'steps: 7')}").run()
    folder = Path(other.directory) / "runs/run-s0" / other.arms[0].run.final_checkpoint
    another = distilled(project, str(folder.relative_to(project.root))).run()
    again = distilled(project, teacher).run()
    assert with_teacher.arms[0].identity == again.arms[0].identity
    assert with_teacher.arms[0].identity != another.arms[0].identity
    assert again.arms[0].run.metrics == with_teacher.arms[0].run.metrics


def test_its_backend_is_another_object_and_is_torn_down_first(project, teacher, monkeypatch):
    events = []
    prepare, teardown = MockBackend.prepare, MockBackend.teardown

    async def told_prepare(self, model, run_dir, seed, restore=None):
        events.append(("prepare", run_dir.name, id(self)))
        return await prepare(self, model, run_dir, seed, restore)

    async def told_teardown(self, client):
        events.append(("teardown", id(self)))
        await teardown(self, client)

    monkeypatch.setattr(MockBackend, "prepare", told_prepare)
    monkeypatch.setattr(MockBackend, "teardown", told_teardown)
    distilled(project, teacher).run()
    (_, one, model), (_, two, beside), *ends = events
    assert (one, two) == ("run-s0", "teacher")
    assert ends == [("teardown", beside), ("teardown", model)]


def test_a_teacher_that_cant_be_prepared_fails_the_run_and_leaves_nothing_behind(
    project, teacher, monkeypatch
):
    prepare, teardown = MockBackend.prepare, MockBackend.teardown
    closed = []

    async def failing(self, model, run_dir, seed, restore=None):
        if run_dir.name == "teacher":
            raise OSError("no such host")
        return await prepare(self, model, run_dir, seed, restore)

    async def told(self, client):
        closed.append(client is not None)
        await teardown(self, client)

    monkeypatch.setattr(MockBackend, "prepare", failing)
    monkeypatch.setattr(MockBackend, "teardown", told)
    result = distilled(project, teacher).run()
    assert result.arms[0].status == "failed"
    assert result.arms[0].failure.boundary == "backend"
    assert "no such host" in result.arms[0].failure.message
    assert closed == [False, True]


def test_a_run_with_a_teacher_resumes_exactly(project, teacher, monkeypatch):
    whole = distilled(project, teacher).run()
    text = f"run:{OPD.replace('FOLDER', teacher).replace('lora_rank: 4', 'lora_rank: 4, save_every: 1')}"
    wanted = project.experiment(text).run()

    from evsys_algo_distill import OPD as Algorithm

    build = Algorithm.build_batch

    async def cut_off(self, step_idx):
        if step_idx == 2:
            raise KeyboardInterrupt
        return await build(self, step_idx)

    cut = project.experiment(text)
    with monkeypatch.context() as patch:
        patch.setattr(Algorithm, "build_batch", cut_off)
        with pytest.raises(KeyboardInterrupt):
            cut.run()
    found = Experiment.resume(cut.record.directory, quiet=True).run()
    assert found.arms[0].run.metrics == wanted.arms[0].run.metrics
    assert whole.arms[0].run.metrics["reverse_kl"] == wanted.arms[0].run.metrics["reverse_kl"]


def test_weights_of_a_teacher_that_have_changed_end_a_resume(project, teacher, monkeypatch):
    from evsys_algo_distill import OPD as Algorithm

    async def cut_off(_self, _step_idx):
        raise KeyboardInterrupt

    cut = distilled(project, teacher)
    with monkeypatch.context() as patch:
        patch.setattr(Algorithm, "build_batch", cut_off)
        with pytest.raises(KeyboardInterrupt):
            cut.run()
    manifest = project.root / teacher / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    for each in read_json(manifest)["files"].values():
        text = text.replace(each["sha256"], "0" * 64)
    manifest.write_text(text, encoding="utf-8")
    found = Experiment.resume(cut.record.directory, quiet=True).run()
    assert found.arms[0].status == "failed"
    assert "those of a role, have changed" in found.arms[0].failure.message


STAGES = """stages:
- name: show
  data: {path: train.jsonl}
  algorithm: {kind: sft, params: {learning_rate: 0.02, steps: 2, batch_size: 4, lora_rank: 4}}
- name: distill
  data: {path: train.jsonl}
  algorithm:
    kind: opd
    params: {learning_rate: 0.003, steps: 2, batch_size: 4, lora_rank: 4, max_tokens: 6, group_size: 2}
  teacher: {model: {name: evsys/tiny, init_from_checkpoint: FOLDER}}
run:
  model: {name: evsys/tiny}
  backend: {kind: mock}
"""


def test_a_stage_has_a_teacher_of_its_own(project, teacher):
    result = project.experiment(STAGES.replace("FOLDER", teacher)).run()
    shown, distilled = result.arms
    assert [arm.status for arm in result.arms] == ["completed", "completed"]
    roles = [read_json(Path(arm.run_dir) / "run.json").get("roles") for arm in (shown, distilled)]
    assert roles[0] is None
    assert roles[1]["teacher"]["weights"] == teacher


def test_what_is_wrong_with_the_teacher_of_a_stage_is_told_where_it_stands(project, teacher):
    with pytest.raises(ConfigError, match=r"stages\[1\]\.teacher\.model\.init_from_checkpoint"):
        project.experiment(STAGES.replace("FOLDER", "nowhere"))
