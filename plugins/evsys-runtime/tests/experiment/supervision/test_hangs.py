"""Whatever never comes back ends its arm, or is done without, and the record has the stacks. Time is only let pass once something hangs."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path

import pytest
from small_project import METADATA

from evsys_runtime.accounting.clock import SystemClock
from evsys_runtime.evaluation import entry_rollouts, evaluator, verify
from evsys_runtime.experiment.arm import backend as arm_backend
from evsys_runtime.experiment.state import listeners
from evsys_runtime.experiment.supervision import watchdog

HANGS = """
import asyncio, threading
from pathlib import Path
from evsys_backend_mock import MockBackend
from evsys_runtime.accounting.clock import SystemClock
from evsys_sdk import (
    SFT, register_algorithm, register_backend, register_callback, register_rollout_engine, register_transform,
    register_verifier,
)
from evsys_sdk import register_data_store
from evsys.errors import BudgetExceeded, StoreError
from evsys.types import Usage

async def hang(*args, **kwargs):
    SystemClock.hung = True
    await asyncio.Event().wait()

def block():
    SystemClock.hung = True
    SystemClock.over.wait(60)

def fails_to_come_back(name):
    def decorate(cls):
        async def method(self, *args, **kwargs):
            await hang()
        setattr(cls, name, method)
        return cls
    return decorate

@register_data_store("pull")
@fails_to_come_back("pull")
class Pull:
    pass

@register_data_store("blocking_pull")
class BlockingPull:
    def pull(self, ref):
        block()

@register_transform("transform")
def transform(rows):
    if any(Path(__file__).parents[1].glob(".evsys/experiments/*")):
        return hanging(rows)
    return list(rows)  # for the search for leaks before the run

def hanging(rows):
    rows = iter(rows)
    yield next(rows)
    block()
    yield from rows  # the thread that was left behind closes the file

@register_backend("prepare")
@fails_to_come_back("prepare")
class Prepare(MockBackend):
    pass

@register_backend("teardown")
@fails_to_come_back("teardown")
class Teardown(MockBackend):
    pass

class OneCall(MockBackend):
    call = ""
    def hangs(self, client, args):
        return True
    async def prepare(self, *args, **kwargs):
        client = await super().prepare(*args, **kwargs)
        own = getattr(client, self.call)
        setattr(client, self.call, lambda *a, **k: hang() if self.hangs(client, a) else own(*a, **k))
        return client

for name in ("forward_backward", "optim_step", "save_state", "sampling_client"):
    register_backend(name)(type(name, (OneCall,), {"call": name}))

@register_backend("close")
class Close(MockBackend):
    async def prepare(self, *args, **kwargs):
        client = await super().prepare(*args, **kwargs)
        own = client.sampling_client
        async def sampling_client():
            snapshot = await own()
            snapshot.close = hang
            return snapshot
        client.sampling_client = sampling_client
        return client

@register_backend("sample")
class Sample(MockBackend):
    async def prepare(self, *args, **kwargs):
        client = await super().prepare(*args, **kwargs)
        own = client.sampling_client
        async def sampling_client():
            snapshot = await own()
            snapshot.sample = hang if snapshot.version == 6 else snapshot.sample
            return snapshot
        client.sampling_client = sampling_client
        return client

@register_algorithm("setup")
@fails_to_come_back("setup")
class Setup(SFT):
    pass

@register_algorithm("build_batch")
class BuildBatch(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 3:
            await self.ctx.evaluate.drain()
            await hang()
        return await super().build_batch(step_idx)

@register_algorithm("deaf")
class Deaf(SFT):
    async def build_batch(self, step_idx):
        try:
            await hang()
        except asyncio.CancelledError:
            await hang()

@register_algorithm("stray")
class Stray(SFT):
    async def build_batch(self, step_idx):
        if step_idx < 3:
            return await super().build_batch(step_idx)
        ctx, record = self.ctx, self.ctx.record
        try:
            await hang()
        except asyncio.CancelledError:
            pass
        turns = 0
        while not SystemClock.ended or turns < 10:
            turns += SystemClock.ended
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                pass
        for name, arguments in (
            ("intent", (4, "b", [])), ("done", (4, "b")), ("metrics", (4, {"loss": 1.0})), ("note", ()),
        ):
            try:
                getattr(record, name)(*arguments)
            except StoreError as error:
                SystemClock.refused[name] = error.message
        try:
            await ctx.checkpoints.save(4, ctx.clients.policy, {})
        except StoreError as error:
            SystemClock.refused["save"] = error.message
        try:
            ctx.budget.charge(Usage(), steps=1)
        except BudgetExceeded as error:
            SystemClock.spent = error.message
        await ctx.hooks.emit("evsys_step_finished", ctx=ctx, step=4, metrics={})
        return await super().build_batch(step_idx)

@register_callback("hears")
class Hears:
    def evsys_step_finished(self, step):
        SystemClock.heard.append(step)
    def evsys_run_finished(self):
        SystemClock.ended = True

@register_rollout_engine("engine")
class Engine:
    async def run(self, tasks, policy, limits):
        await hang()
        yield

@register_verifier("slow")
async def slow(model_output, expected, params, rollout):
    return await hang() if rollout.policy_version == 6 else 0.0

class Blocks:
    blocking = True
    def __call__(self, model_output, expected, params):
        SystemClock.over.wait(60)

register_verifier("blocks")(Blocks)

@register_callback("listens")
class Listens:
    async def evsys_step_finished(self, ctx, step):
        await hang()
"""

ENTRY = "    max_tokens: 4\n"


@pytest.fixture
def hangs(project, run_text, monkeypatch):
    """A run in which one thing never comes back."""
    monkeypatch.setattr(SystemClock, "hung", False, raising=False)
    monkeypatch.setattr(SystemClock, "time", 0.0, raising=False)
    over = threading.Event()
    monkeypatch.setattr(SystemClock, "over", over, raising=False)
    monkeypatch.setattr(SystemClock, "now", lambda self: SystemClock.time)

    async def sleep(self, seconds):
        end = SystemClock.time + seconds
        async with asyncio.timeout(60):
            while not (SystemClock.hung and SystemClock.passes):  # noqa: ASYNC110 - set in a thread
                await asyncio.sleep(0.002)
        SystemClock.time = max(end, SystemClock.time)

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    for module, name in (
        (arm_backend, "TEARDOWN_SECONDS"),
        (listeners, "HOOK_SECONDS"),
        (evaluator, "RELEASE_SECONDS"),
        (evaluator, "CLOSE_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.1)
    project.code("plugins", HANGS)

    def run(*changes, entry=ENTRY, extra="", time_passes=True, **options):
        monkeypatch.setattr(SystemClock, "passes", time_passes, raising=False)
        metadata = METADATA.replace(ENTRY, entry)
        text = "run:" + run_text(*changes) if changes else None
        result = project.experiment(text, metadata=metadata, extra=extra, **options).run()
        (arm,) = result.arms
        stacks = Path(arm.run_dir, "stacks.txt")
        return result, arm, stacks.read_text(encoding="utf-8") if stacks.exists() else ""

    yield run
    over.set()


def backend(name):
    return ("kind: mock", f"kind: {name}")


def algorithm(name):
    return ("kind: sft", f"kind: {name}")


STORED = ("path: train.jsonl", "dataset_id: there")


@pytest.mark.parametrize(
    ("changes", "extra", "boundary", "plugin", "place"),
    [
        (
            [STORED, ("source_kind: jsonl", "on_bad_row: error")],
            "data_store: {kind: pull}\n",
            "store",
            "there",
            "hang",
        ),
        (
            [STORED, ("source_kind: jsonl", "on_bad_row: error")],
            "data_store: {kind: blocking_pull}\n",
            "store",
            "there",
            "block",
        ),
        ([("kind: jsonl_to_chat", "kind: transform")], "", "data", "jsonl", "block"),
        ([backend("prepare")], "", "backend", "prepare", "hang"),
        ([algorithm("setup")], "", "algorithm", "setup", "hang"),
        ([algorithm("build_batch")], "", "algorithm", "build_batch", "hang"),
        ([backend("forward_backward")], "", "backend", "forward_backward", "hang"),
        ([backend("optim_step")], "", "backend", "optim_step", "hang"),
        ([backend("save_state")], "", "backend", "save_state", "hang"),
        ([backend("sampling_client")], "", "backend", "sampling_client", "hang"),
        ([backend("sample")], "", "evaluation", "scoring", "hang"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_a_run_that_waits_for_what_never_comes_is_stalled(hangs, changes, extra, boundary, plugin, place):
    result, arm, stacks = hangs(*changes, extra=extra)
    assert (result.status, result.exit_code, arm.status, arm.run.status) == (
        "stalled",
        1,
        "stalled",
        "stalled",
    )
    failure = arm.failure
    assert failure.boundary == boundary
    assert re.match(
        rf"nothing moved for (3,600|4,620) s while waiting for {boundary} '{plugin}' \(at .*/src/plugins.py:\d+ in {place}\); "
        "stacks.txt in its record has the stack traces$",
        failure.message,
    )
    assert re.search(rf"/src/plugins.py:\d+ in {place}", failure.place)
    assert "watchdog.floor_seconds" in failure.hint
    assert f"in {place}\n" in stacks
    assert f"while waiting for {boundary} '{plugin}'" in stacks


def test_what_a_stalled_run_did_before_stays(hangs):
    steps = ("steps: 6", "steps: 6, save_every: 2")
    _, arm, _ = hangs(algorithm("build_batch"), steps)
    assert (arm.run.steps, arm.run.final_checkpoint) == (3, "checkpoints/2")
    assert {e.benchmark: e.status for e in arm.evaluations} == {"val": "completed"}
    log = [json.loads(line) for line in Path(arm.run_dir, "run.log.jsonl").read_text().splitlines()]
    (failed,) = [line for line in log if line["event"] == "run.failed"]
    assert failed["status"] == "stalled"


def test_a_run_that_can_not_be_ended_is_left_running_and_the_next_one_goes_on(hangs, monkeypatch):
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.1)
    result, arm, stacks = hangs(algorithm("deaf"))
    assert (result.status, arm.status) == ("stalled", "stalled")
    assert "It couldn't be ended within 0.1 s, and was left running" in arm.failure.message
    assert "in build_batch" in stacks


def test_a_run_that_is_left_running_adds_nothing_to_its_closed_record(hangs, monkeypatch):
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.1)
    for name, value in (("ended", False), ("refused", {}), ("heard", []), ("spent", None)):
        monkeypatch.setattr(SystemClock, name, value, raising=False)
    _, arm, _ = hangs(
        algorithm("stray"),
        ("steps: 6", "steps: 6, save_every: 2"),
        extra="callbacks: [{kind: hears}]\nbudget: {steps: 100}\n",
    )
    assert (arm.status, arm.run.steps) == ("stalled", 3)
    assert sorted(SystemClock.refused) == ["done", "intent", "metrics", "note", "save"]
    assert all("its run was given up" in message for message in SystemClock.refused.values())
    assert SystemClock.heard == [1, 2, 3]
    assert SystemClock.spent == "run-s0 has ended, and spends nothing more"
    journal = Path(arm.run_dir, "journal.jsonl").read_text(encoding="utf-8").splitlines()
    assert max(json.loads(line)["step"] for line in journal) == 3
    assert sorted(path.name for path in Path(arm.run_dir, "checkpoints").iterdir()) == ["2"]
    assert json.loads(Path(arm.run_dir, "run_result.json").read_text(encoding="utf-8"))["status"] == "stalled"


@pytest.mark.parametrize("name", ["teardown", "close"])
def test_what_does_not_let_go_of_a_model_costs_its_deadline(hangs, name):
    result, arm, stacks = hangs(backend(name), time_passes=False)
    assert "in hang" in stacks
    if name == "teardown":
        assert (result.status, arm.status, arm.failure.boundary) == ("stalled", "stalled", "backend")
        assert "teardown of backend 'teardown' took longer than 0.1 s" in arm.failure.message
    else:
        assert (result.status, arm.status) == ("completed", "completed")
        assert any(
            "a snapshot couldn't be closed: TimeoutError: not over within 0.1 s" in w for w in arm.warnings
        )
    assert [e.status for e in arm.evaluations] == ["completed", "completed"]


def test_a_teardown_that_hangs_after_a_failure_is_not_what_is_told(hangs):
    _, arm, stacks = hangs(backend("teardown"), ("steps: 6", "steps: 6, max_length: 2"), time_passes=False)
    assert (arm.status, arm.failure.boundary) == ("failed", "data")
    assert any("teardown of backend 'teardown' took longer" in warning for warning in arm.warnings)
    assert "in hang" in stacks


def test_a_listener_that_does_not_come_back_is_left_out_and_the_run_completes(hangs):
    result, arm, stacks = hangs(extra="callbacks: [{kind: listens}]\n", time_passes=False)
    assert (result.status, arm.status, arm.run.steps) == ("completed", "completed", 6)
    (warning,) = [w for w in arm.warnings if "left out" in w]
    assert warning.startswith("listener 'listens': evsys_step_finished didn't come back within 0.1 s")
    assert "listener 'listens' in evsys_step_finished" in stacks
    assert "in hang" in stacks


def test_an_engine_from_which_no_rollout_comes_fails_its_scorings_and_the_weights_are_kept(
    hangs, monkeypatch
):
    monkeypatch.setattr(entry_rollouts.EntryRollouts, "patience", lambda self, benchmark: 0.1)
    result, arm, stacks = hangs(entry=ENTRY + "    engine: engine\n", time_passes=False)
    assert (result.status, result.exit_code, arm.status) == ("completed", 1, "completed")
    assert {e.status for e in arm.evaluations} == {"failed"}
    assert "no rollout ended for 0.1 s" in arm.evaluations[0].failure.message
    assert "no rollout ended for 0.1 s, so the scoring was given up" in stacks
    assert "in hang" in stacks
    assert arm.run.final_checkpoint == "checkpoints/6"


def test_a_verifier_that_is_waited_for_longer_than_it_may_take_itself_stalls_the_run(hangs, project):
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(12)], verifier="slow")
    _, arm, stacks = hangs(skip_grader_check=True)
    assert (arm.status, arm.failure.boundary, arm.run.steps) == ("stalled", "evaluation", 6)
    assert "in slow" in arm.failure.place or "in hang" in arm.failure.place
    assert "in slow" in stacks
    assert [(e.step, e.status) for e in arm.evaluations] == [(0, "completed"), (6, "missing")]
    assert "the run was ended, since nothing moved for" in arm.evaluations[1].failure.message


def test_verifiers_that_hang_in_threads_hold_up_no_work_of_the_run_itself(hangs, project, monkeypatch):
    monkeypatch.setitem(verify.make_verify.__kwdefaults__, "timeout_seconds", 0.2)
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(64)], verifier="blocks")
    _, arm, _ = hangs(skip_grader_check=True, time_passes=False)
    assert (arm.status, arm.run.steps) == ("completed", 6)
    assert {e.status for e in arm.evaluations} == {"invalid"}
    assert "no verdict within 0.2 s" in arm.evaluations[0].failure.message
