"""Arms side by side: the same results as one after the other, and what happens to one happens to no other."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from small_project import METADATA, Project

from evsys.errors import ConfigError
from evsys_record.checkpoints import MANIFEST

GRID = """
matrix:
  axes:
    algorithm.params.steps: [12, 3, 6]
  base_run:{run}
n_repeats: 2
"""

DRAWN = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 3\n    temperature: 1.0")

MEETS = """
import asyncio
from evsys_sdk import SFT, register_algorithm

MET = asyncio.Barrier({parties})
UNDER_WAY = []

@register_algorithm("meets")
class Meets(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 0:
            UNDER_WAY.append(self)
            assert len(UNDER_WAY) <= {parties}
            async with asyncio.timeout(60):
                await MET.wait()
        if step_idx == self.total_steps() - 1:
            UNDER_WAY.remove(self)
        return await super().build_batch(step_idx)
"""

PHASES = """
import asyncio
from evsys_backend_mock import MockBackend
from evsys_sdk import SFT, register_algorithm, register_backend, register_transform

class Config:
    pass

@register_transform("no_data")
def no_data(rows):
    raise RuntimeError("broken in data")

@register_algorithm("no_train")
class NoTrain(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 2:
            raise RuntimeError("broken in train")
        return await super().build_batch(step_idx)

@register_backend("no_prepare")
class NoPrepare(MockBackend):
    async def prepare(self, *args, **kwargs):
        raise RuntimeError("broken in prepare")

@register_backend("no_save")
class NoSave(MockBackend):
    async def prepare(self, *args, **kwargs):
        client = await super().prepare(*args, **kwargs)
        async def save_state(*args, **kwargs):
            raise RuntimeError("broken in save")
        client.save_state = save_state
        return client

@register_backend("no_evaluate")
class NoEvaluate(MockBackend):
    async def prepare(self, *args, **kwargs):
        client = await super().prepare(*args, **kwargs)
        sampling_client = client.sampling_client
        async def odd():
            snapshot = await sampling_client()
            if snapshot.version:
                raise RuntimeError("broken in evaluate")
            return snapshot
        client.sampling_client = odd
        return client

@register_backend("no_teardown")
class NoTeardown(MockBackend):
    async def teardown(self, client):
        await super().teardown(client)
        raise RuntimeError("broken in teardown")
"""

BREAKS = {
    "data": ("data", None, "broken in data"),
    "prepare": ("backend", "no_prepare", "broken in prepare"),
    "train": ("algorithm", "no_train", "broken in train"),
    "save": ("backend", "no_save", "broken in save"),
    "teardown": ("backend", "no_teardown", "broken in teardown"),
}


@pytest.fixture
def grid(run_text):
    return GRID.format(run=run_text(name=None).replace("\n", "\n    ").replace("steps: 6, ", ""))


def one(name, rate=0.05, **changes):
    run = {
        "name": name,
        "data": {
            "source_kind": "jsonl",
            "path": "train.jsonl",
            "transforms": [{"kind": "jsonl_to_chat"}],
        },
        "model": {"name": "evsys/tiny"},
        "algorithm": {
            "kind": "sft",
            "params": {"learning_rate": rate, "steps": 6, "batch_size": 4, "lora_rank": 4},
        },
        "backend": {"kind": "mock"},
    }
    for path, value in changes.items():
        part, _, key = path.partition("__")
        run[part] = {**run[part], key: value}
    return run


def several(*runs):
    return f"runs: {json.dumps(runs)}\n"


def tree(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def lines(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def timeless(value):
    """Without what a clock says."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k.rpartition("/")[2] not in ("seconds", "time", "seq")}
        return {key: timeless(item) for key, item in kept.items()}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def left_behind(directory):
    """What an experiment leaves that must be the same each time."""
    record = Path(directory)
    found = {"conclusion": timeless(tree(record / "conclusion.json"))}
    for run in sorted((record / "runs").iterdir()):
        found[run.name] = {
            "training": timeless(lines(run / "training/metrics.jsonl")),
            "validation": sorted(
                json.dumps([line["step"], timeless(line["values"])])
                for line in lines(run / "validation/metrics.jsonl")
            ),
            "journal": [line["batch_id"] for line in lines(run / "journal.jsonl")],
            "adapters": {
                f"{path.parent.name}/{name}": facts["sha256"]
                for path in sorted(run.glob(f"checkpoints/*/{MANIFEST}"))
                for name, facts in tree(path)["files"].items()
                if name.endswith((".safetensors", ".npz"))
            },
        }
    return found


# --- the same results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "at_once"), [("mock", 4), ("local", 3)])
def test_several_at_once_leave_the_same_bits_as_one_after_the_other(tmp_path, grid, backend, at_once):
    grid = grid.replace("kind: mock", f"kind: {backend}")
    left = []
    for width in (1, at_once):
        (tmp_path / str(width)).mkdir()
        project = Project(tmp_path / str(width))
        experiment = project.experiment(grid, metadata=DRAWN, extra=f"max_concurrent_arms: {width}\n")
        result = experiment.run()
        assert result.status == "completed", result.warnings
        assert [arm.run_id for arm in result.arms] == [
            f"{arm.name}-s{arm.repeat}" for arm in experiment.plan.arms
        ]
        left.append(left_behind(result.directory))
    assert len(left[0]) == 7
    assert all(run["adapters"] for name, run in left[0].items() if name != "conclusion")
    assert left[0] == left[1]


def test_the_untrained_model_is_scored_by_the_first_arm_alone(project, grid):
    result = project.experiment(grid, extra="max_concurrent_arms: 4\n").run()
    made = [
        sum(line["step"] == 0 for line in lines(Path(arm.run_dir) / "validation/rollouts.jsonl"))
        for arm in result.arms
    ]
    assert made == [12, 0, 0, 0, 0, 0]
    assert [[e.step for e in arm.evaluations][0] for arm in result.arms] == [0] * 6
    assert all(arm.evaluations[0].metrics == result.arms[0].evaluations[0].metrics for arm in result.arms)
    assert [bool(arm.evaluations[0].usage.completion_tokens) for arm in result.arms] == [True] + [False] * 5


# --- how many at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 3])
def test_so_many_arms_run_at_once_and_no_more(project, width):
    project.code("algorithms", MEETS.format(parties=width))
    runs = [one(f"arm-{n}", rate=0.01 * (n + 1), algorithm__kind="meets") for n in range(6)]
    result = project.experiment(several(*runs), extra=f"max_concurrent_arms: {width}\n").run()
    assert result.status == "completed", [arm.failure for arm in result.arms]
    assert [arm.arm for arm in result.arms] == [f"arm-{n}" for n in range(6)]


def test_what_an_arm_sets_in_its_context_no_other_sees(project):
    project.code(
        "algorithms",
        """
import asyncio
from contextvars import ContextVar
import numpy as np
from evsys_sdk import SFT, register_algorithm

WHOSE = ContextVar("whose", default=None)
MET = asyncio.Barrier(2)

@register_algorithm("sets")
class Sets(SFT):
    async def setup(self, ctx):
        self.mine = ctx.run_id
        await super().setup(ctx)

    async def build_batch(self, step_idx):
        async with asyncio.timeout(60):
            await MET.wait()
        if step_idx == 0:
            assert WHOSE.get() is None, WHOSE.get()
        if step_idx == 3 and self.mine == "a-s0":
            np.array([1e308]) * 10
        WHOSE.set(self.mine)
        await asyncio.sleep(0)
        assert WHOSE.get() == self.mine
        return await super().build_batch(step_idx)
""",
    )
    runs = [one(name, algorithm__kind="sets", data__path=f"{name}.jsonl") for name in ("a", "b")]
    for name in ("a", "b"):
        project.write(f"{name}.jsonl", [{"prompt": f"say {c}", "completion": name} for c in "abcdefgh"])
    result = project.experiment(several(*runs)).run()
    assert result.status == "completed", [arm.failure for arm in result.arms]
    logs = [lines(Path(arm.run_dir) / "run.log.jsonl") for arm in result.arms]
    assert [{line["arm"] for line in log} for log in logs] == [{"a"}, {"b"}]
    assert [any(line["event"] == "numbers.odd" for line in log) for log in logs] == [True, False]


# --- one fails -------------------------------------------------------------------------------------------------------


def test_a_sweep_with_one_arm_raising_in_each_phase_keeps_the_others(project):
    project.code("plugins", PHASES)
    runs = [
        one("data", data__transforms=[{"kind": "no_data"}]),
        one("whole"),
        one("prepare", backend__kind="no_prepare"),
        one("train", algorithm__kind="no_train"),
        one("save", backend__kind="no_save"),
        one("evaluate", backend__kind="no_evaluate"),
        one("teardown", backend__kind="no_teardown"),
        one("other", rate=0.01),
    ]
    result = project.experiment(several(*runs), extra="max_concurrent_arms: 4\n").run()
    assert (result.status, result.exit_code) == ("completed", 1)
    by_name = {arm.arm: arm for arm in result.arms}
    assert list(by_name) == [run["name"] for run in runs]
    for name, (boundary, plugin, said) in BREAKS.items():
        failure = by_name[name].failure
        assert by_name[name].status == "failed"
        assert (failure.boundary, said in failure.message) == (boundary, True), failure
        assert plugin is None or failure.plugin == plugin
        assert "plugins.py:" in failure.place
        assert tree(Path(by_name[name].run_dir) / "run_result.json")["failure"]["traceback"]
    assert [by_name[name].status for name in ("whole", "other", "evaluate")] == ["completed"] * 3
    for name in ("whole", "other"):
        assert [(e.step, e.status) for e in by_name[name].evaluations] == [(0, "completed"), (6, "completed")]
    last = by_name["evaluate"].evaluations[-1]
    assert (last.status, "broken in evaluate" in last.failure.message) == ("missing", True)
    assert (by_name["save"].run.steps, by_name["teardown"].run.steps, by_name["train"].run.steps) == (6, 6, 2)


FAILS = (
    MEETS.format(parties=3)
    + """

@register_algorithm("fails")
class Fails(Meets):
    async def build_batch(self, step_idx):
        if step_idx == 1:
            raise RuntimeError("the second batch")
        return await super().build_batch(step_idx)

@register_algorithm("waits")
class Waits(Meets):
    async def build_batch(self, step_idx):
        if step_idx == 1:
            await asyncio.Event().wait()
        return await super().build_batch(step_idx)
"""
)


def test_fail_fast_cancels_the_arms_under_way_and_skips_the_rest(project):
    project.code("algorithms", FAILS)
    runs = [one("a", algorithm__kind="waits"), one("b", algorithm__kind="fails")]
    runs += [
        one("c", algorithm__kind="waits", rate=0.01),
        one("d"),
        one("e", rate=0.01),
    ]
    result = project.experiment(several(*runs), extra="max_concurrent_arms: 3\n", fail_fast=True).run()
    statuses = [arm.status for arm in result.arms]
    assert statuses == ["cancelled", "failed", "cancelled", "skipped", "skipped"]
    assert (result.status, result.exit_code) == ("failed", 1)
    for arm in (result.arms[0], result.arms[2]):
        kept = tree(Path(arm.run_dir) / "run_result.json")
        assert (kept["status"], kept["run"]["steps"]) == ("cancelled", 1)
        assert kept["run"]["stop_reason"] == "ended, since b-s0 failed"


def test_an_arm_that_a_plugin_keeps_from_ending_is_left(project, monkeypatch):
    monkeypatch.setattr("evsys_runtime.experiment.scheduling.DRAIN_SECONDS", 0.1)
    swallows = """

@register_algorithm("swallows")
class Swallows(Meets):
    async def build_batch(self, step_idx):
        if step_idx == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()
        return await super().build_batch(step_idx)
"""
    project.code("algorithms", FAILS.replace("asyncio.Barrier(3)", "asyncio.Barrier(2)") + swallows)
    runs = [one("a", algorithm__kind="swallows"), one("b", algorithm__kind="fails")]
    result = project.experiment(several(*runs), fail_fast=True).run()
    assert [arm.status for arm in result.arms] == ["cancelled", "failed"]
    assert "a plugin didn't let it end within 0.1 s" in result.arms[0].run.stop_reason


def test_ctrl_c_ends_every_arm_with_a_record_of_its_own(project):
    project.code("algorithms", FAILS)
    project.code(
        "callbacks",
        """
import os, signal
from evsys_sdk import register_callback

@register_callback("kills")
class Kills:
    def evsys_step_finished(self, ctx, step, metrics):
        if ctx.arm == "b" and step == 2:
            os.kill(os.getpid(), signal.SIGINT)
""",
    )
    runs = [one("a", algorithm__kind="waits"), one("b", algorithm__kind="meets")]
    runs += [one("c", algorithm__kind="waits", rate=0.01), one("d")]
    experiment = project.experiment(
        several(*runs), extra="max_concurrent_arms: 3\ncallbacks: [{kind: kills}]\n"
    )
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    result = experiment.result
    assert (result.status, result.exit_code) == ("cancelled", 128 + signal.SIGINT)
    assert [(arm.arm, arm.status, arm.run.steps) for arm in result.arms] == [
        ("a", "cancelled", 1),
        ("b", "cancelled", 2),
        ("c", "cancelled", 1),
        ("d", "skipped", 0),
    ]
    assert result.arms[-1].run.stop_reason == "not started: the experiment ended before its turn"
    assert tree(Path(result.directory) / "experiment.json")["not_started"] == {
        "d-s0": {"status": "skipped", "reason": "not started: the experiment ended before its turn"}
    }
    for arm in result.arms[:-1]:
        assert tree(Path(arm.run_dir) / "run_result.json")["run"]["stop_reason"] == "interrupted"


def test_a_record_that_cannot_be_written_ends_all_arms(project, grid, monkeypatch):
    from evsys.errors import StoreError
    from evsys_record.run_record import RunRecord

    written = RunRecord.write_result

    def full(self, result):
        if result.arm.endswith("3"):
            raise StoreError("no space left")
        return written(self, result)

    monkeypatch.setattr(RunRecord, "write_result", full)
    experiment = project.experiment(grid)
    with pytest.raises(StoreError, match="no space left"):
        experiment.run()
    assert experiment.result.status == "failed"
    assert {arm.status for arm in experiment.result.arms} <= {"cancelled", "completed", "skipped"}


# --- what the file says ----------------------------------------------------------------------------------------------


def test_how_many_at_once_is_what_the_file_says_or_the_backends_suggest(project, grid):
    project.code(
        "backends",
        """
from evsys_backend_mock import MockBackend
from evsys_sdk import register_backend

@register_backend("two")
class Two(MockBackend):
    concurrent_arms = 2

@register_backend("alone")
class Alone(MockBackend):
    capabilities = MockBackend.capabilities - {"concurrent_runs"}
""",
    )

    def width(text, extra=""):
        return project.experiment(text, extra=extra).plan.concurrent_arms

    assert width(grid) == 4
    assert width(grid, "max_concurrent_arms: 3\n") == 3
    assert width(grid, "max_concurrent_arms: 64\n") == 6
    assert width(grid.replace("kind: mock", "kind: local")) == 1
    assert width(grid.replace("kind: mock", "kind: local"), "max_concurrent_arms: 2\n") == 2
    assert width(grid.replace("kind: mock", "kind: alone")) == 1
    mixed = several(one("a"), one("b", backend__kind="two"), one("c", rate=0.01))
    assert width(mixed) == 2
    with pytest.raises(ConfigError, match=r"max_concurrent_arms: backend 'alone' doesn't declare .*write 1"):
        width(grid.replace("kind: mock", "kind: alone"), "max_concurrent_arms: 2\n")


def test_control_runs_are_beside_the_others(project, run_text):
    metadata = METADATA.replace("success_metric", "baseline: learning_rate-0.05\n  success_metric")
    text = f"matrix: {{axes: {{algorithm.params.learning_rate: [0.05, 0.02]}}}}\nbase_run:{run_text()}"
    extra = "control: {repeats: 3}\nmax_concurrent_arms: 9\n"
    assert project.experiment(text, metadata=metadata, extra=extra).plan.concurrent_arms == 5
