"""However a run ends, its listeners hear of it once."""

import json
import os
from pathlib import Path

import pytest

from evsys.errors import BackendError, StoreError
from evsys_record.run_record import RunRecord
from evsys_runtime.accounting.breaker import BreakerSettings, shared_breaker
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.arm import ending
from evsys_runtime.experiment.supervision.interrupts import Interruption, TerminationRequest

CODE = '''
import asyncio, os, signal
from pathlib import Path
from evsys.errors import BackendError, BudgetExceeded, RunError
from evsys.types import Failure, RunResult
from evsys_runtime.accounting.breaker import shared_breaker
from evsys_backend_mock import MockBackend
from evsys_sdk import SFT, register_algorithm, register_backend, register_callback

HERE = Path(__file__).parent

@register_callback("hears")
class Hears:
    """Writes down each end that it hears of."""

    def note(self, what, ctx, **more):
        words = [what, ctx.run_id, *map(str, more.values())]
        with (HERE / "heard.txt").open("a", encoding="utf-8") as file:
            file.write(" ".join(words) + "\\n")

    def evsys_run_failed(self, ctx, failure):
        self.note("failed", ctx)

    async def evsys_run_finished(self, ctx, result):
        self.note("finished", ctx, status=result.status)
        {hears}

@register_algorithm("ends")
class Ends(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 3:
            {body}
        return await super().build_batch(step_idx)

@register_algorithm("gives")
class Gives(SFT):
    async def train(self, ctx):
        return RunResult(status="failed", run_id=ctx.run_id, steps=0, failure=Failure(boundary="algorithm", message="x"))

@register_backend("missing")
class Missing(MockBackend):
    async def prepare(self, *args, **kwargs):
        raise BackendError("no card")
'''

EXTRA = "callbacks: [{kind: hears}]\n"


@pytest.fixture
def ended(project, run_text):
    """Carries out an experiment whose algorithm does something at its fourth step; gives its result and what was heard."""

    def run(body="pass", *changes, kind="ends", hears="pass", raises=None, extra="", **options):
        project.code("plugins", CODE.replace("{body}", body).replace("{hears}", hears))
        text = "run:" + run_text(("kind: sft", f"kind: {kind}"), *changes)
        experiment: Experiment = project.experiment(text, extra=EXTRA + extra, **options)
        if raises is None:
            experiment.run()
        else:
            with pytest.raises(raises):
                experiment.run()
        path = project.root / "src" / "heard.txt"
        heard = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return experiment.result, heard

    return run


@pytest.mark.parametrize(
    ("body", "kind", "failed", "status"),
    [
        ("pass", "ends", False, "completed"),
        ("self.ctx.request_stop('enough')", "ends", False, "completed"),
        ("raise RuntimeError('no')", "ends", True, "failed"),
        ("raise SystemExit(3)", "ends", True, "failed"),
        ("raise asyncio.CancelledError", "ends", True, "failed"),
        ("raise BudgetExceeded('enough')", "ends", False, "budget_stopped"),
        ("pass", "gives", True, "failed"),
    ],
)
def test_a_run_that_ends_by_itself(ended, body, kind, failed, status):
    result, heard = ended(body, kind=kind)
    assert [arm.status for arm in result.arms] == [status]
    assert heard == ["failed run-s0"] * failed + [f"finished run-s0 {status}"]


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(
    ("body", "raised"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM); await asyncio.sleep(30)", TerminationRequest),
        ("os.kill(os.getpid(), signal.SIGINT); await asyncio.sleep(30)", KeyboardInterrupt),
        ("raise KeyboardInterrupt", KeyboardInterrupt),
    ],
)
def test_a_run_that_is_interrupted(ended, body, raised):
    result, heard = ended(body, raises=raised)
    assert [(arm.status, arm.run.steps) for arm in result.arms] == [("cancelled", 3)]
    assert heard == ["finished run-s0 cancelled"]


def test_nothing_is_waited_for_where_ctrl_c_came_again(ended, monkeypatch):
    monkeypatch.setattr(ending, "interruption", lambda: Interruption(times=2))
    result, heard = ended("raise KeyboardInterrupt", raises=KeyboardInterrupt)
    assert [arm.status for arm in result.arms] == ["cancelled"]
    assert heard == []


def test_a_listener_that_doesnt_come_back_holds_up_an_interrupted_run_for_some_seconds_only(
    ended, monkeypatch, project
):
    monkeypatch.setattr(ending, "LAST_WORD_SECONDS", 0.05)
    result, heard = ended(
        "raise KeyboardInterrupt", hears="await asyncio.sleep(60)", raises=KeyboardInterrupt
    )
    assert heard == ["finished run-s0 cancelled"]
    log = Path(result.directory, "experiment.log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [line["run_id"] for line in map(json.loads, log) if line["event"] == "listeners.cut_off"] == [
        "run-s0"
    ]


def test_what_a_listener_does_wrong_where_a_run_is_interrupted_is_told(ended):
    result, _ = ended("raise KeyboardInterrupt", hears="raise RuntimeError('gone')", raises=KeyboardInterrupt)
    [arm] = result.arms
    assert any("gone" in warning for warning in arm.warnings)


def test_a_listener_that_is_interrupted_hears_nothing_more(ended):
    result, heard = ended(hears="raise KeyboardInterrupt", raises=KeyboardInterrupt)
    assert [arm.status for arm in result.arms] == ["completed"]
    assert heard == ["finished run-s0 completed"]


def test_runs_that_end_since_another_one_failed(ended):
    body = "if self.ctx.repeat: await asyncio.sleep(30)\n            raise RuntimeError('no')"
    result, heard = ended(body, extra="n_repeats: 2\nmax_concurrent_arms: 2\n", fail_fast=True)
    assert [arm.status for arm in result.arms] == ["failed", "cancelled"]
    assert sorted(heard) == [
        "failed run-s0",
        "finished run-s0 failed",
        "finished run-s1 cancelled",
    ]


def test_a_run_whose_service_stays_down(ended):
    settings = BreakerSettings(failures=1, open_after=0.0, cool_down=0.01, give_up_after=0.05)
    breaker = shared_breaker("the service", settings)
    body = (
        "shared_breaker('the service').failed('nothing listens', lambda: asyncio.sleep(0, 'still'))\n"
        "            await asyncio.sleep(30)"
    )
    result, heard = ended(body, raises=BackendError)
    assert breaker.service in result.arms[0].failure.message
    assert [arm.status for arm in result.arms] == ["failed"]
    assert heard == ["failed run-s0", "finished run-s0 failed"]


def test_a_run_that_cant_be_recorded(ended, monkeypatch):
    real = RunRecord.write_result

    def full(self, result):
        if result.status == "failed":
            raise StoreError("the disk is full")
        real(self, result)

    monkeypatch.setattr(RunRecord, "write_result", full)
    _, heard = ended("raise RuntimeError('no')", raises=StoreError)
    assert heard == ["failed run-s0", "finished run-s0 failed"]


def test_a_run_that_never_had_a_model_has_nobody_to_tell(ended):
    result, heard = ended("pass", ("kind: mock", "kind: missing"))
    assert [arm.failure.message for arm in result.arms] == ["no card"]
    assert heard == []
