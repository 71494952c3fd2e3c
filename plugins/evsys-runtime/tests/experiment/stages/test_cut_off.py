"""Chains that are cut off at any stage, each seed at its own, come to the matrix of those that weren't."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from faulty_project import FaultyProject
from small_project import Project

from evsys.errors import StoreError
from evsys_record import files
from evsys_record.files import read_json
from evsys_runtime.data import replay

METADATA = """
metadata:
  success_metric: a.mean_reward
  benchmark:
  - {name: a, path: ta.jsonl, max_tokens: 2, temperature: 1.0}
  - {name: b, path: tb.jsonl, max_tokens: 2, run_every: 3}
  - {name: c, path: tc.jsonl, max_tokens: 2}
"""
TEXT = """
continual:
  replay: 0.5
  datasets:
  - {name: a, path: a.jsonl, transforms: [{kind: jsonl_to_chat}]}
  - {name: b, path: b.jsonl, transforms: [{kind: jsonl_to_chat}]}
  - {name: c, path: c.jsonl, transforms: [{kind: jsonl_to_chat}]}
run:
  model: {name: evsys/tiny}
  algorithm: {kind: breaks, params: {learning_rate: 0.1, steps: 6, batch_size: 4, save_every: 3, lora_rank: 4}}
  backend: {kind: mock}
"""
MORE = "n_repeats: 2\nmax_concurrent_arms: 2\ncallbacks: [{kind: faults}]\n"


class Lab(FaultyProject):
    def __init__(self, root):
        super().__init__(Project(root))
        for name, (letters, answer) in {"a": ("abcd", "x"), "b": ("efgh", "y"), "c": ("ijkl", "z")}.items():
            rows = [{"prompt": f"say {letter}", "completion": answer} for letter in letters]
            self.project.write(f"{name}.jsonl", rows)
            verifier = {"name": "exact_match", "expected": answer}
            tasks = [
                {
                    "task_id": f"{name}{letter}{i}",
                    "instruction": f"say {letter} {i}",
                    "verifier": verifier,
                }
                for letter in letters
                for i in range(3)
            ]
            self.project.write(f"t{name}.jsonl", tasks)

    def run(self, *names, **options):
        self.fault(*names)
        experiment = self.project.experiment(
            TEXT, metadata=METADATA, extra=MORE, skip_grader_check=True, no_cache=True, **options
        )
        return self.carried_out(experiment)


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


def outcome(result):
    """The matrix, and of each run its weights, its scores and the rows that were drawn for it."""
    runs = {}
    for arm in result.arms:
        folder = Path(arm.run_dir)
        saved = read_json(folder / arm.run.final_checkpoint / "manifest.json")
        runs[arm.run_id] = (
            {name: each["sha256"] for name, each in saved["files"].items()},
            sorted((one.step, one.benchmark, dict(one.task_rewards)) for one in arm.evaluations),
            read_json(folder / "run.json")["data"]["fingerprint"],
        )
    return result.status, result.conclusion.forgetting, runs


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    result = Lab(tmp_path_factory.mktemp("whole")).run()
    assert result.status == "completed"
    assert len(result.arms) == 6
    return outcome(result)


@pytest.mark.parametrize(
    "cuts",
    [
        ("interrupt-run-s0.1-a-scored-0-b",),
        ("interrupt-run-s1.1-a-2",),
        ("interrupt-run-s0.1-a-scored-6-a",),  # those of b and c aren't over
        ("interrupt-run-s0.2-b-data",),
        ("interrupt-run-s1.2-b-scored-3-b",),
        ("interrupt-run-s0.2-b-saved-6",),
        ("interrupt-run-s1.2-b-scored-6-c", "interrupt-run-s0.3-c-scored-6-a"),
        ("interrupt-run-s0.3-c-finished", "interrupt-run-s1.3-c-5"),
    ],
)
def test_a_chain_that_is_interrupted_once_or_again_comes_to_the_same_matrix(lab, whole, cuts):
    first, *later = cuts
    result = lab.run(first)
    assert result.status == "cancelled"
    for cut in later:
        result = lab.resume(result.directory, cut)
    assert outcome(lab.resume(result.directory)) == whole


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("stage", [2, 3])
def test_ctrl_c_while_rows_are_drawn_again_costs_nothing(lab, whole, monkeypatch, stage):
    real, left = replay.Replay.__call__, ["once"]

    def struck(self, rows):
        for number, row in enumerate(real(self, rows)):
            begun = any(lab.project.root.glob(".evsys/experiments/*"))  # not in the search for leaks before
            if begun and number == 4 and len(self.earlier) == stage - 1 and left:
                left.pop()
                os.kill(os.getpid(), signal.SIGINT)
            yield row

    with monkeypatch.context() as patch:
        patch.setattr(replay.Replay, "__call__", struck)
        cut = lab.run()
    assert (cut.status, left) == ("cancelled", [])
    assert outcome(lab.resume(cut.directory)) == whole


@pytest.mark.parametrize(
    ("place", "ends"),
    [
        (("run-s0.2-b", "checkpoints"), "completed"),
        (("run-s1.1-a", "run_result.json"), None),  # a run that can't be recorded ends all
        (("run-s0.3-c", "run.json"), None),
        (("conclusion.json",), None),
    ],
)
def test_a_disk_that_is_full_at_any_stage_costs_nothing_once_there_is_room(
    lab, whole, monkeypatch, place, ends
):
    real, full = files.os.fsync, ["yes"]

    def fsync(descriptor):
        written = str(Path(f"/proc/self/fd/{descriptor}").resolve())
        if full and all(part in written for part in place):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    lab.fault()
    experiment = lab.project.experiment(
        TEXT, metadata=METADATA, extra=MORE, skip_grader_check=True, no_cache=True
    )
    if ends is None:
        with pytest.raises(StoreError, match="No space left on device"):
            experiment.run()
    else:
        assert experiment.run().status == ends
    full.clear()
    assert outcome(lab.resume(experiment.record.directory)) == whole


def test_a_seed_that_fails_ends_its_own_chain_and_goes_on_there(lab, whole):
    failed = lab.run("break-run-s0.2-b-5")
    ended = {arm.run_id: arm.status for arm in failed.arms}
    assert {run: status for run, status in ended.items() if status != "completed"} == {
        "run-s0.2-b": "failed",
        "run-s0.3-c": "skipped",
    }
    assert [each.scored for each in failed.conclusion.forgetting] == [((2, 2, 1, 1),) * 3]
    again = lab.resume(failed.directory)
    assert outcome(again) == whole
    assert {arm.run_id: arm.attempt for arm in again.arms if arm.attempt > 1} == {"run-s0.2-b": 2}


def test_the_first_failure_ends_all_chains_where_that_is_asked_for(lab, whole):
    failed = lab.run("break-run-s1.2-b-2", fail_fast=True)
    ended = {arm.run_id: arm.status for arm in failed.arms}
    assert ended["run-s1.2-b"] == "failed"
    assert ended["run-s1.3-c"] == "skipped"
    assert set(ended.values()) <= {"completed", "failed", "skipped", "cancelled"}
    assert outcome(lab.resume(failed.directory)) == whole
