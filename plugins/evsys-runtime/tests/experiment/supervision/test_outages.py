"""A service that stays down stops the experiment that needs it, before more is spent on what can't be scored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from small_project import METADATA

from evsys.errors import BackendError
from evsys_runtime.accounting.clock import SystemClock

SERVICE = """
from evsys.types import Completion, Message
from evsys_runtime.accounting.breaker import ServiceDownError, shared_breaker
from evsys_runtime.accounting.clock import SystemClock
from evsys_sdk import register_inference

@register_inference("service")
class Service:
    name = "service"
    asked = 0
    back_after = {back_after}

    def __init__(self, **fields):
        self.breaker = shared_breaker("http://service/{test}")

    async def probe(self):
        type(self).asked += 1
        return None if SystemClock.time >= self.back_after else "HTTP 503"

    async def generate(self, messages, sampling, *, n=1, tools=()):
        with self.breaker.attempt() as attempt:
            wrong = await self.probe()
            SystemClock.time += 10.0  # it takes its time to fail
            if wrong is None:
                attempt.succeeded()
                answer = Message(role="assistant", content="a")
                return [Completion(message=answer, finish_reason="stop")] * n
            attempt.failed(wrong, self.probe)
        raise ConnectionError(wrong)
"""

ASKS = METADATA.replace("  success_metric: val.mean_reward\n", "").replace(
    "max_tokens: 4", "max_tokens: 4\n    inference: {kind: service}"
)


@pytest.fixture
def down(project, monkeypatch, request):
    """Runs two arms that are scored through a service which is back after so many seconds."""
    monkeypatch.setattr(SystemClock, "time", 0.0, raising=False)
    monkeypatch.setattr(SystemClock, "now", lambda self: SystemClock.time)

    async def sleep(self, seconds):
        if seconds > 200:  # the watchdog, which has nothing to do here
            await asyncio.Event().wait()
        SystemClock.time += seconds
        await asyncio.sleep(0.001)

    monkeypatch.setattr(SystemClock, "sleep", sleep)

    def experiment(back_after, extra="", text=None):
        project.code("services", SERVICE.format(back_after=back_after, test=request.node.name))
        return project.experiment(
            text,
            metadata=ASKS,
            extra=f"n_repeats: 2\nmax_concurrent_arms: 1\n{extra}",
            skip_grader_check=True,
            no_cache=True,
        )

    return experiment


def test_a_service_that_stays_down_stops_the_experiment_and_spares_the_arms_to_come(down):
    experiment = down("float('inf')", "budget: {steps: 100}\n")
    with pytest.raises(BackendError, match=r"http://service/\S+ wasn't asked: it has failed for"):
        experiment.run()
    result = experiment.result
    assert (result.status, result.exit_code) == ("failed", 1)
    assert any("the experiment ended early: http://service/" in w for w in result.warnings)
    facts = json.loads(Path(result.directory, "experiment.json").read_text(encoding="utf-8"))
    assert facts["status"] == "failed"
    assert facts["budget"]["spent"]["steps"] <= 6  # the second arm wasn't begun
    assert list(facts["budget"]["runs"]) == ["run-s0"]
    assert 900 <= SystemClock.time < 1100


def test_the_arm_under_way_has_failed_at_the_boundary_of_the_service(down, project, run_text):
    project.code(
        "slow",
        """
import asyncio
from evsys_sdk import SFT, register_algorithm

@register_algorithm("waits")
class Waits(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 3:
            await asyncio.Event().wait()
        return await super().build_batch(step_idx)
""",
    )
    experiment = down("float('inf')", text="run:" + run_text(("kind: sft", "kind: waits")))
    with pytest.raises(BackendError):
        experiment.run()
    arm, to_come = experiment.result.arms
    assert to_come.status == "skipped"
    assert (arm.status, arm.run.steps, arm.failure.boundary) == ("failed", 3, "backend")
    assert arm.failure.plugin.startswith("http://service/")
    assert "resume" in arm.failure.hint


def test_a_wait_for_a_service_is_reported_again_and_again(down, monkeypatch):
    monkeypatch.setattr("evsys_runtime.experiment.scheduling.NOTICE_SECONDS", 0.001)
    log = Path(down(500).run().directory, "experiment.log.jsonl").read_text(encoding="utf-8")
    lines = [line for line in log.splitlines() if "no arm is started until it answers" in line]
    assert len(lines) > 2
    assert "HTTP 503" in lines[0]
    assert "the experiment ends after 900 s of failures" in lines[0]


def test_a_service_that_comes_back_in_time_stops_nothing_and_arms_wait_for_it(down):
    result = down(500).run()
    assert [arm.status for arm in result.arms] == ["completed", "completed"]
    assert {e.status for e in result.arms[1].evaluations} == {"completed"}
    assert result.arms[0].evaluations[0].status == "invalid"
