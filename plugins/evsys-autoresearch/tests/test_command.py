"""`evsys research`, by the commands and the goal of the skill `running-autoresearch`."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from evsys_autoresearch.command import research

SKILL = (
    Path(__file__).parents[2] / "evsys-agents/src/evsys_agents/plugin/skills/running-autoresearch/SKILL.md"
)


@pytest.fixture
def call(lab, monkeypatch):
    monkeypatch.chdir(lab.root)
    return lambda *words: CliRunner().invoke(research, words)


def test_the_goal_and_the_commands_of_the_skill(lab, call):
    text = SKILL.read_text(encoding="utf-8")
    (goal,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    lab.write("goal.yaml", goal)
    assert call("report").exit_code == 2
    run = call("goal.yaml", "--json", "--quiet")
    result = json.loads(run.stdout)
    assert (run.exit_code, len(result["rounds"])) == (0, 2)
    words = [line.split()[2:] for line in re.findall(r"^evsys research .*$", text, re.MULTILINE)]
    assert [each[0] for each in words] == ["goal.yaml", "status", "resume", "report"]
    status = json.loads(call(*words[1]).stdout)
    assert (status["state"], status["verdict"]) == ("finished", result["verdict"])
    assert result["verdict"] in text
    assert call(*words[2]).exit_code == 0
    assert result["goal"] in call(*words[3]).stdout


def test_a_wrong_goal_is_refused_before_a_record_is_made(lab, call):
    lab.goal(start="nowhere.yaml")
    outcome = call("goal.yaml")
    assert "nowhere.yaml" in str(outcome.exception)
    assert not (lab.root / ".evsys/research").exists()


def test_an_unknown_run_is_named(call):
    outcome = call("status", "20200101")
    assert (outcome.exit_code, "20200101" in outcome.output) == (2, True)
