"""Researchers that try to get more than the rules give: none does, and each attempt is on record."""

import copy
import json
import os
import random
import signal
import subprocess
import sys

import attrs
import pytest

from evsys.types import Proposal
from evsys_autoresearch import runner
from evsys_autoresearch.laboratory import Laboratory
from evsys_autoresearch.runner import Research, run_research

RATE = "learning_rate"


def proposal(state, rate, **fields):
    config = copy.deepcopy(dict(state.start))
    config["run"]["algorithm"]["params"][RATE] = rate
    return Proposal(**{"config": config, "hypothesis": "it pays", "expected_effect": 0.1, **fields})


@pytest.fixture
def answers(monkeypatch):
    """Makes a function of the state the researcher, in this process."""

    def answers(propose):
        async def ask(researcher, state, goal, folder, sandbox):
            return propose(state)

        monkeypatch.setattr(runner, "ask", ask)

    return answers


def test_the_same_question_is_answered_once_in_whatever_words(lab, answers):
    answers(
        lambda state: proposal(
            state, [0.0001, 1e-4][len(state.rounds) % 2], hypothesis=f"{len(state.rounds)}"
        )
    )
    lab.goal(budget="{experiments: 10}", stop="{lost: 10}")
    result = lab.run()
    assert [each.status for each in result.rounds] == ["scored"] + ["lost"] * 9
    assert {each.reason for each in result.rounds[1:]} == {"repeated: round 1 had the same arm"}
    assert len(list((lab.root / ".evsys/experiments").glob("*-r0*"))) == 1 + result.spent["experiments"]


def test_a_budget_cant_be_raised_by_the_researcher(lab, answers):
    def greedy(state):
        config = copy.deepcopy(dict(state.start))
        config["run"]["algorithm"]["params"][RATE] = 0.05
        extra = [
            {"n_repeats": 50},
            {"budget": {"usd": 10**6}},
            {"base_seed": 7},
            {"output_dir": "../elsewhere"},
        ]
        return Proposal(
            config={**config, **extra[len(state.rounds)]}, hypothesis="more helps", expected_effect=1.0
        )

    answers(greedy)
    lab.goal(budget="{experiments: 4}")
    assert {each.reason.rpartition(", ")[2] for each in lab.run().rounds} == {"which is not under a lever"}


def test_no_round_begins_once_the_rest_is_reserved(lab, answers, monkeypatch):
    measured = Laboratory.measured
    monkeypatch.setattr(Laboratory, "measured", lambda *them: attrs.evolve(measured(*them), seconds=30.0))
    answers(lambda state: proposal(state, 0.01 * (len(state.rounds) + 1)))
    lab.goal(budget="{experiments: 9, seconds: 100}")
    result = lab.run()
    assert result.rounds == ()
    assert result.reason == "the rest of the budget is reserved for the confirmation and the sealed test"


@pytest.mark.parametrize("name", ["goal.yaml", "start.yaml"])
def test_an_edited_goal_ends_the_research(lab, answers, name):
    research = lab.begin()
    edited = research.directory / name if name == "goal.yaml" else lab.root / name

    def edit(state):
        edited.write_text(edited.read_text(encoding="utf-8") + "\n# \n", encoding="utf-8")
        return proposal(state, 0.05)

    answers(edit)
    result = run_research(research)
    assert result.verdict == "invalid"
    assert [each.status for each in result.rounds] == ["lost"]
    assert name in result.rounds[0].reason


def test_a_goal_edited_between_kill_and_resume_ends_the_research(lab, answers):
    def propose(state):
        if state.rounds:
            raise KeyboardInterrupt
        return proposal(state, 0.05)

    answers(propose)
    research = lab.begin()
    with pytest.raises(KeyboardInterrupt):
        run_research(research)
    goal = research.directory / "goal.yaml"
    goal.write_text(
        goal.read_text(encoding="utf-8").replace("experiments: 3", "experiments: 300"), encoding="utf-8"
    )
    result = run_research(Research.resume(research.directory))
    assert (result.verdict, len(result.rounds)) == ("invalid", 1)


def start(directory):
    return subprocess.Popen(
        [sys.executable, "-m", "evsys_autoresearch.child", "resume", str(directory)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_processes_killed_at_random_decide_the_same(lab, seed):
    """Each process is killed after it has printed a random number of lines, and the last one is left alone."""
    lever = "{path: run.algorithm.params.learning_rate, values: [0.05]}"
    lab.goal(budget="{experiments: 1}", levers=f"[{lever}]")
    whole = lab.run()
    directory, rng = lab.begin().directory, random.Random(seed)
    for _ in range(1 if seed == 0 else 4):
        process = start(directory)
        for _ in range(rng.randrange(1, 6)):
            process.stderr.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    process = start(directory)
    process.communicate()
    assert process.returncode == 0
    report = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    assert [each["score"] for each in report["rounds"]] == [each.score for each in whole.rounds]
    assert report["verdict"] == whole.verdict
    events = [
        json.loads(line) for line in (directory / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    for event in ("start.scored", "rounds.ended", "sealed.opened", "research.finished"):
        assert sum(line["event"] == event for line in events) <= 1
    assert [line["number"] for line in events if line["event"] == "round.ended"] == [1]
