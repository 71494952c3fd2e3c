"""Arms that are added while the experiment runs, and arms that follow others."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from evsys_record.jsonl import read_jsonl
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment import experiment as experiments
from evsys_runtime.experiment.state.session import run_id_of

LIST = "runs:{}\n"


class OneMoreRepeat:
    """Repeats the best arm so far, twice, once all arms are through."""

    name = "repeats"

    def __init__(self) -> None:
        self.asked = []

    def propose(self, session, running):
        self.asked.append((sorted(session.results), running))
        if running or any(arm.repeat for arm in session.plan.arms):
            return []
        best = max(session.results.values(), key=lambda result: result.evaluations[-1].scored)
        return [{"arm": best.arm, "repeat": repeat} for repeat in (1, 2)]

    def arms(self, plan, proposal):
        first = next(arm for arm in plan.arms if arm.name == proposal["arm"])
        return [attrs.evolve(first, repeat=proposal["repeat"])]


@pytest.fixture
def source(monkeypatch):
    made = OneMoreRepeat()
    monkeypatch.setattr(experiments, "sources_of", lambda _plan: (made,))
    return made


def test_added_arms_are_trained_recorded_and_part_of_the_result(project, source):
    result = project.experiment().run()

    assert [arm.run_id for arm in result.arms] == ["run-s0", "run-s1", "run-s2"]
    assert result.status == "completed"
    lines = [line["proposal"] for line in read_jsonl(Path(result.directory) / "proposals.jsonl")]
    assert lines == [{"arm": "run", "repeat": 1}, {"arm": "run", "repeat": 2}]
    assert source.asked[0] == (["run-s0"], 0)


def test_what_was_decided_before_a_crash_isnt_decided_again(project, source, monkeypatch):
    def cut_off(*_arguments):
        raise KeyboardInterrupt

    first = project.experiment()
    with monkeypatch.context() as patch:
        patch.setattr(source, "arms", cut_off)  # behind the line in proposals.jsonl, before any arm of it
        with pytest.raises(KeyboardInterrupt):
            first.run()
    directory = first.record.directory
    source.propose = lambda _session, _running: []

    result = Experiment.resume(directory, quiet=True).run()

    assert [arm.run_id for arm in result.arms] == ["run-s0", "run-s1", "run-s2"]
    assert len(list(read_jsonl(directory / "proposals.jsonl"))) == 2


def test_an_arm_begins_when_the_one_it_follows_is_complete(project, run_text):
    experiment = two_arms(project, run_text(("steps: 6", "steps: 2"), name="a"), run_text(name="b"))

    result = experiment.run()

    assert [arm.status for arm in result.arms] == ["completed", "completed"]
    ended, begun = (list(experiment.record.find_run(run).read_journal()) for run in ("a-s0", "b-s0"))
    assert begun[0]["time"] >= ended[-1]["time"]


def test_an_arm_is_skipped_when_the_one_it_follows_fails(project, run_text):
    broken = run_text(("kind: sft", "kind: breaks"), name="a")
    project.code(
        "algorithms",
        "from evsys_sdk import SFT, register_algorithm\n"
        "@register_algorithm('breaks')\nclass Breaks(SFT):\n"
        "    async def build_batch(self, step_idx):\n        raise RuntimeError('no')\n",
    )

    result = two_arms(project, broken, run_text(name="b")).run()

    first, second = result.arms
    assert (first.status, second.status) == ("failed", "skipped")
    assert second.run.stop_reason == "it continues from a-s0, which is failed"


def two_arms(project, first, second):
    """An experiment whose second arm follows the first."""
    made = project.experiment(LIST.format(listed(first) + listed(second)), extra="max_concurrent_arms: 2\n")
    plan = made.plan
    before, follows = plan.arms
    arms = (before, attrs.evolve(follows, after=run_id_of(before)))
    return Experiment(attrs.evolve(plan, arms=arms), quiet=True)


def listed(run: str) -> str:
    return f"\n- {run.strip()}"
