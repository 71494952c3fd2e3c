"""What requests do to a running experiment. They come from a callback of the experiment, so that each comes at a known step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from small_project import METADATA, Project

import evsys_record
from evsys.types import ExperimentResult
from evsys_record.events import read_events
from evsys_record.jsonl import read_jsonl
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment import Experiment
from evsys_stats.alpha_spending import level_of_look

ASKS = """
import asyncio
import json
from evsys_record import Control
from evsys_sdk import register_callback

async def ask(ctx, requests):
    folder = ctx.run_dir.parent.parent
    async with await Control.open(folder, by="ann") as control:
        for request in requests:
            if "interrupt" in request:
                raise KeyboardInterrupt
            until = request.pop("until", None)
            status = None
            while until is not None and until not in str(status):
                status = await control.request({"request": "status"})
            reply = {"before": status, **await control.request(request)}
            with (folder / "replies.jsonl").open("a") as stream:
                stream.write(json.dumps(reply) + "\\n")

@register_callback("asks")
class Asks:
    def __init__(self):
        self.requests, self.tasks = json.loads(REQUESTS), []

    async def evsys_evaluation_advanced(self, ctx, step, done, total):
        if 0 < done < total:
            place = f"{ctx.run_id} evaluation {step}"
            await ask(ctx, self.requests.pop(place, ()))
            later = self.requests.pop(f"{place} later", None)
            if later is not None:
                self.tasks.append(asyncio.create_task(ask(ctx, later)))

    async def evsys_step_finished(self, ctx, step):
        await ask(ctx, self.requests.get(f"{ctx.run_id} {step}", ()))
        later = self.requests.get(f"{ctx.run_id} {step} later")
        if later is not None:
            self.tasks.append(asyncio.create_task(ask(ctx, later)))
"""

SCORED = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 2")


@attrs.frozen
class Asked:
    """An experiment that was asked for something, and what came of it."""

    result: ExperimentResult
    replies: list[Any]
    folder: Path

    def events(self, *names: str) -> list[Any]:
        return [event for event in read_events(self.folder) if event.event in names]

    @property
    def status(self) -> dict[str, tuple[str, int]]:
        return {arm.run_id: (arm.status, arm.run.steps) for arm in self.result.arms}


@pytest.fixture
def two_arms(run_text) -> str:
    long, short = run_text(name="long"), run_text(("steps: 6", "steps: 4"), name="short")
    return f"runs:\n- {long.strip()}\n- {short.strip()}\n"


@pytest.fixture
def ask(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    def run(
        requests: dict[str, list[Any]], text: str | None = None, *, metadata: str = SCORED, extra: str = ""
    ):
        project.code("asks", f"REQUESTS = {json.dumps(requests)!r}\n{ASKS}")
        callbacks = "\ncallbacks: [{kind: asks}]\n"
        experiment = project.experiment(text, metadata=metadata, extra=extra + callbacks)
        result = experiment.run()
        folder = Path(result.directory)
        return Asked(result, list(read_jsonl(folder / "replies.jsonl")), folder)

    return run


def test_a_run_holds_behind_a_checkpoint_until_it_may_continue(ask):
    found = ask(
        {
            "run-s0 2": [{"request": "pause", "reason": "look at it"}],
            "run-s0 2 later": [{"request": "unpause", "until": "'paused'"}],
        }
    )
    assert found.status == {"run-s0": ("completed", 6)}
    asked, saved, paused, again, unpaused = found.events(
        "control.requested", "checkpoint.saved", "run.paused", "run.unpaused"
    )[:5]
    assert (asked.facts["request"], asked.facts["by"], asked.facts["reason"]) == (
        "pause",
        "ann",
        "look at it",
    )
    assert (saved.event, saved.facts["step"]) == ("checkpoint.saved", 2)
    assert (paused.event, paused.facts["step"]) == ("run.paused", 2)
    assert (again.facts["request"], unpaused.event) == ("unpause", "run.unpaused")
    assert found.replies[1]["before"]["runs"][0]["status"] == "paused"
    assert found.result.conclusion.extra.get("requests") is None  # it changed nothing


def test_an_evaluation_holds_at_once_if_that_is_asked_for(ask):
    found = ask(
        {
            "run-s0 evaluation 6": [{"request": "pause", "now": True}],
            "run-s0 evaluation 6 later": [{"request": "unpause", "until": "'paused'"}],
        }
    )
    assert found.status == {"run-s0": ("completed", 6)}
    assert found.replies[0]["now"] is True
    (paused,) = found.events("run.paused")
    (scored,) = [event for event in found.events("evaluation.finished") if event.facts["step"] == 6]
    assert paused.seq < found.events("run.unpaused")[0].seq < scored.seq
    assert scored.facts["status"] == "completed"


def test_a_stop_holds_for_an_experiment_that_is_killed_behind_it(ask, two_arms, project):
    with pytest.raises(KeyboardInterrupt):
        ask(
            {"long-s0 2": [{"request": "stop"}, {"interrupt": True}]},
            two_arms,
            extra="max_concurrent_arms: 1\n",
        )
    (folder,) = (project.root / ".evsys/experiments").glob("*-trial")
    again = Experiment.resume(folder, quiet=True).run()
    assert {arm.run_id: arm.status for arm in again.arms} == {"long-s0": "stopped", "short-s0": "stopped"}
    assert (again.status, again.exit_code) == ("stopped", 0)


def test_one_arm_holds_while_another_continues(ask, two_arms):
    found = ask(
        {
            "long-s0 1": [{"request": "pause", "arm": "long"}],
            "short-s0 4": [{"request": "unpause", "arm": "long-s0", "until": "'paused'"}],
        },
        two_arms,
        extra="\nmax_concurrent_arms: 2\n",
    )
    assert set(found.status.values()) == {("completed", 6), ("completed", 4)}
    (paused,) = found.events("run.paused")
    assert (paused.run, paused.facts["step"]) == ("long-s0", 1)


def test_an_arm_that_is_stopped_is_scored_and_is_no_failed_one(ask):
    found = ask({"run-s0 3": [{"request": "stop", "arm": "run", "reason": "good enough"}]})
    assert found.status == {"run-s0": ("stopped", 3)}
    assert (found.result.status, found.result.exit_code, found.result.failed) == ("stopped", 0, ())
    assert found.result.arms[0].run.stop_reason == "stopped on request by ann: good enough"
    assert [e.step for e in found.result.arms[0].evaluations] == [0, 2, 3]
    assert found.result.conclusion.verdict is not None
    with evsys_record.open(found.folder).index() as index:
        (past,) = evsys_record.ask(index, evsys_record.Question()).experiments
    assert (past.status, past.runs, past.runs_completed) == ("stopped", 1, 1)
    (request,) = found.result.conclusion.extra["requests"]
    assert (request["request"], request["by"], request["runs"]) == ("stop", "ann", ["run-s0"])
    assert "UTC, run-s0 ended early, by ann: good enough\n" in (found.folder / "conclusion.md").read_text(
        encoding="utf-8"
    )


def test_a_stop_divides_the_level_among_the_planned_scorings(ask):
    found = ask({"run-s0 4": [{"request": "stop"}]})
    assert found.result.conclusion.looks.scorings == 3


def test_a_stop_between_repeats_divides_the_level_among_the_planned_ones(ask):
    """Any of them could have been the last, as all of their scores were known by then."""
    four = "n_repeats: 4\nmax_concurrent_arms: 1\n"
    found = ask({"run-s1 evaluation 6": [{"request": "stop"}]}, metadata=METADATA, extra=four)
    assert [steps for _, steps in found.status.values()] == [6, 6, 0, 0]
    looks = found.result.conclusion.looks
    assert (looks.scorings, looks.level) == (4, level_of_look(1, ALPHA) / 4)


def test_a_stop_that_drops_whole_arms_leaves_the_level_to_the_correction_for_all(ask, two_arms):
    found = ask(
        {"long-s0 evaluation 6": [{"request": "stop"}]},
        two_arms,
        metadata=METADATA,
        extra="max_concurrent_arms: 1\n",
    )
    assert [steps for _, steps in found.status.values()] == [6, 0]
    assert found.result.conclusion.looks.scorings == 1


def test_an_experiment_that_is_stopped_begins_no_more_arms_and_is_complete(ask, two_arms):
    found = ask({"long-s0 2": [{"request": "stop"}]}, two_arms, extra="max_concurrent_arms: 1\n")
    assert found.status == {"long-s0": ("stopped", 2), "short-s0": ("stopped", 0)}
    assert found.result.status == "stopped"
    again = Experiment.resume(found.folder, quiet=True)
    assert again.run().status == "stopped"
    assert again.nothing_to_do


def test_of_two_who_stop_an_experiment_the_second_learns_of_the_first(ask):
    found = ask(
        {"run-s0 2": [{"request": "stop", "reason": "first"}, {"request": "stop", "reason": "second"}]}
    )
    assert [reply["ok"] for reply in found.replies] == [True, False]
    assert found.result.arms[0].run.stop_reason.endswith("first")
    assert len(found.events("control.requested")) == 1


def test_a_stop_lifts_a_pause(ask):
    found = ask(
        {
            "run-s0 2": [{"request": "pause"}],
            "run-s0 2 later": [{"request": "stop", "until": "'paused'"}],
        }
    )
    assert found.status == {"run-s0": ("stopped", 2)}


def test_a_budget_is_extended_by_an_amount_and_stays_so(ask):
    found = ask(
        {"run-s0 2": [{"request": "extend", "steps": 2}, {"request": "extend", "steps": 1}]},
        extra="\nbudget: {steps: 3}\n",
    )
    assert found.status == {"run-s0": ("completed", 6)}
    assert [reply["limits"] for reply in found.replies] == [{"steps": 5}, {"steps": 6}]
    facts = json.loads((found.folder / "experiment.json").read_text(encoding="utf-8"))
    assert facts["adjusted"] == ["budget.steps=5", "budget.steps=6"]
    assert "UTC, budget.steps raised to 6, by ann\n" in (found.folder / "conclusion.md").read_text(
        encoding="utf-8"
    )
    assert [request["limits"] for request in found.result.conclusion.extra["requests"]] == [
        {"steps": 5},
        {"steps": 6},
    ]


def test_more_arms_run_at_once_from_the_request_on(ask, two_arms):
    found = ask(
        {
            "long-s0 1": [{"request": "set", "values": {"max_concurrent_arms": 2}}],
            "short-s0 4": [{"request": "unpause", "until": "'paused'"}],
            "long-s0 2": [{"request": "pause", "arm": "long"}],
        },
        two_arms,
        extra="max_concurrent_arms: 1\n",
    )
    assert set(found.status.values()) == {("completed", 6), ("completed", 4)}


REFUSED = {
    "unknown request 'explode'": {"request": "explode"},
    "unknown request None": {},
    "there is no arm 'other'": {"request": "pause", "arm": "other"},
    "there is no arm ['run']": {"request": "stop", "arm": ["run"]},
    "nothing is paused": {"request": "unpause"},
    "nothing to extend": {"request": "extend"},
    "budget.usd has no limit": {"request": "extend", "money": 3},
    "invalid amount -1 for budget.steps": {"request": "extend", "steps": -1},
    "invalid amount 0.5 for budget.steps": {"request": "extend", "steps": 0.5},
    "invalid amount True for budget.steps": {"request": "extend", "steps": True},
    "invalid amount 'x' for budget.steps": {"request": "extend", "steps": "x"},
    "nothing to set": {"request": "set"},
    "learning_rate can't be changed": {"request": "set", "values": {"learning_rate": 1}},
    "invalid max_concurrent_arms 0": {"request": "set", "values": {"max_concurrent_arms": 0}},
    "invalid max_concurrent_arms 10000": {"request": "set", "values": {"max_concurrent_arms": 10000}},
    "by is not a string": {"request": "pause", "by": 3},
    "reason is not a string": {"request": "pause", "reason": {}},
}


def test_what_makes_no_sense_is_refused_and_changes_nothing(ask):
    found = ask({"run-s0 2": list(REFUSED.values())}, extra="\nbudget: {steps: 100}\n")
    for error, reply in zip(REFUSED, found.replies, strict=True):
        assert not reply["ok"]
        assert reply["error"].startswith(error)
    assert found.events("control.requested") == []
    assert found.status == {"run-s0": ("completed", 6)}
