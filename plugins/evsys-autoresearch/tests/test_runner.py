"""Whole research runs on the mock backend, and what loses a round."""

import json
from pathlib import Path

import pytest

from evsys_autoresearch.runner import Research, run_research

CHEAT = '''
import copy
from pathlib import Path

from evsys import register_researcher
from evsys.types import Proposal


@register_researcher("cheat")
class Cheat:
    """Does one forbidden thing a round, by the round's number."""

    async def propose(self, state):
        config = copy.deepcopy(state.start)
        config["run"]["algorithm"]["params"]["learning_rate"] = 0.05
        number, files = len(state.rounds) + 1, {}
        if number == 1:
            raise ValueError("lost my mind")
        if number == 2:
            config["metadata"]["benchmark"][0]["path"] = "train.jsonl"
        if number == 3:
            files["verifiers.py"] = "x = 1"
        if number == 4:
            Path(PROJECT, "val.jsonl").write_text("")
        if number == 5:
            text = Path(PROJECT, "../sealed/tasks.jsonl").read_text()
            raise ValueError(f"stole {len(text)} characters")
        return Proposal(config=config, files=files, hypothesis="cheating pays", expected_effect=1.0)
'''


def test_research_ends_with_a_claim_on_the_sealed_test_and_a_report(lab):
    lab.goal(referee="[random]")
    result = lab.run()
    events = [line["event"] for line in lab.journal(result)]
    assert result.verdict in {"improved", "not_confirmed"}
    assert events.count("sealed.opened") == events.count("round.ended") - 2 == 1
    assert events.index("round.registered") < events.index(
        "experiment.ended", events.index("round.registered")
    )
    for each in result.rounds:
        folder = lab.root / ".evsys/experiments" / each.experiment
        assert each.hypothesis in (folder / "hypothesis.md").read_text(encoding="utf-8")
    again = run_research(Research.resume(Path(result.directory)))  # opens the sealed test no second time
    assert [line["event"] for line in lab.journal(again)][len(events) :] == ["research.resumed"]
    assert again.sealed == result.sealed
    report = json.loads((Path(result.directory) / "report.json").read_text(encoding="utf-8"))
    assert report["sealed"]["tasks"] == 24
    assert len(report["referees"]["random"]) == 4
    page = (Path(result.directory) / "report.html").read_text(encoding="utf-8")
    assert "route support questions" in page
    assert "<script" not in page


def test_a_goal_without_a_sealed_test_claims_nothing(lab):
    lines = (lab.root / "goal.yaml").read_text(encoding="utf-8").splitlines()
    lab.write("goal.yaml", "\n".join(line for line in lines if not line.startswith("sealed")))
    lever = "{path: run.algorithm.params.learning_rate, values: [0.05]}"
    lab.goal(budget="{experiments: 1}", levers=f"[{lever}]")
    assert lab.run().verdict in {"unsealed", "not_confirmed"}


def test_a_researcher_that_breaks_rules_loses_its_rounds(lab):
    lab.write("src/researchers.py", CHEAT.replace("PROJECT", repr(str(lab.root))))
    lab.goal(researcher="{kind: cheat}", budget="{experiments: 5}", stop="{lost: 5}")
    result = lab.run()
    reasons = [each.reason for each in result.rounds]
    assert [each.status for each in result.rounds] == ["lost"] * 5
    assert "lost my mind" in reasons[0]
    assert reasons[1] == "levers: it changes metadata.benchmark, which is not under a lever"
    assert reasons[2] == "levers: it writes verifiers.py, which is not under a lever"
    assert "val.jsonl" in reasons[3]
    assert "sealed/tasks.jsonl" in reasons[4]
    assert "stole" not in reasons[4]
    assert (result.verdict, len(result.broken_rules)) == ("not_improved", 5)


def test_a_researcher_that_hangs_loses_the_round(lab):
    code = CHEAT.replace('raise ValueError("lost my mind")', "import time; time.sleep(600)")
    lab.write("src/researchers.py", code.replace("PROJECT", repr(str(lab.root))))
    lab.goal(researcher="{kind: cheat}", budget="{experiments: 1}", propose_seconds="8")
    assert lab.run().rounds[0].reason == "researcher: no end within 8 s"


class Killed(BaseException):
    """Stands for the end of a process: nothing catches it."""


def test_research_killed_after_any_line_continues_and_decides_the_same(lab, monkeypatch):
    from evsys_autoresearch import journal

    lab.goal(budget="{experiments: 2}")
    whole = lab.run()
    append = journal.Journal.append
    kills = iter((2, 7, 11, len(lab.journal(whole)) - 1))
    place = next(kills)

    def die(self, event, **facts):
        line = append(self, event, **facts)
        if line["seq"] == place:
            raise Killed
        return line

    research = lab.begin()
    monkeypatch.setattr(journal.Journal, "append", die)
    for following in (*kills, None):
        with pytest.raises(Killed):
            run_research(Research.resume(research.directory))
        place = following
    result = run_research(Research.resume(research.directory))
    assert [each.changes for each in result.rounds] == [each.changes for each in whole.rounds]
    assert [each.score for each in result.rounds] == [each.score for each in whole.rounds]
    assert result.verdict == whole.verdict
    events = [(line["event"], line.get("number")) for line in lab.journal(result)]
    assert [number for event, number in events if event == "round.ended"] == [1, 2]
    assert [event for event, _ in events].count("research.resumed") == 4
