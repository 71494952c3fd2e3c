"""`evsys next` proposes commands that work as printed and train something."""

import json
import shlex

import pytest
from past_lab import write_conclusion

CONFIG = """version: 1
name: trial
metadata:
  hypothesis: A small rate learns more.
  success_metric: val.mean_reward
  minimum_effect: 0.2
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4, metrics: [mean_reward], limit: 12}
matrix:
  axes: {algorithm.params.learning_rate: [0.05, 0.01]}
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 4, batch_size: 4}}
  backend: {kind: mock}
"""
EXPERIMENTS = ".evsys/experiments"


@pytest.fixture
def project(tmp_path, monkeypatch):
    tasks = [
        {
            "task_id": f"t{i:02d}",
            "instruction": f"letter {i * i + 7} please",
            "verifier": {"name": "exact_match", "expected": "a"},
        }
        for i in range(20)
    ]
    rows = [{"prompt": f"say {c}", "completion": c} for c in "abcdefgh"]
    for name, lines in (("train.jsonl", rows), ("tasks.jsonl", tasks)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (tmp_path / EXPERIMENTS).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(evsys, project, text):
    (project / "config.yaml").write_text(text, encoding="utf-8")
    outcome = evsys("run", "config.yaml", "-q", "--json", "--full")
    return outcome.code, outcome.json


def carry_out(evsys, project, command):
    """Carry out a command as a shell would, with `&&` and `>`; the exit code of its last part."""
    code = None
    for part in command.split(" && "):
        program, *words = shlex.split(part)
        assert program == "evsys"
        target = None
        if ">" in words:
            words, target = words[: words.index(">")], words[-1]
        outcome = evsys(*words)
        code = outcome.code
        if target is not None:
            assert code == 0, outcome.err
            (project / target).write_text(outcome.out, encoding="utf-8")
    return code


@pytest.mark.parametrize("budget", ["{steps: 5}", "{arms: 1}", "{tokens: 600}"])
def test_a_run_stopped_by_its_budget_is_resumed_with_a_limit_that_pays_for_it(evsys, project, budget):
    code, result = ran(evsys, project, f"{CONFIG}budget: {budget}\n")
    assert (code, result["status"]) == (5, "budget_stopped")
    (step,) = (step for step in evsys("next", "--json").json["steps"] if step["kind"] == "resume")
    limit = budget.strip("{}").partition(":")[0]
    assert step["command"].startswith(f"evsys resume {result['experiment_id']} --set budget.{limit}=")
    assert carry_out(evsys, project, step["command"]) == 0
    shown = evsys("show", result["experiment_id"], "--json").json
    assert shown["experiment"]["status"] == "completed"
    assert not [step for step in evsys("next", "--json").json["steps"] if step["kind"] == "resume"]


def supported(evsys, project):
    """The id of an experiment whose second arm is said to have won."""
    _, result = ran(evsys, project, CONFIG)
    directory = project / EXPERIMENTS / result["experiment_id"]
    conclusion = json.loads((directory / "conclusion.json").read_bytes())
    winner = conclusion["comparisons"][1]
    winner |= {"outcome": "win", "effect": 0.5, "low": 0.3, "high": 0.7, "p_value": 0.001}
    supported = {"verdict": "SUPPORTED", "best_arm": winner["arm"], "comparisons": [winner]}
    write_conclusion(directory, {**conclusion, **supported})
    return result["experiment_id"]


def test_every_command_works_as_printed_and_no_step_is_proposed_again(evsys, project):
    supported(evsys, project)
    steps = evsys("next", "--json", "--limit", "0").json["steps"]
    assert {step["kind"] for step in steps} == {"lever", "neighbour"}
    commands = [step["command"] for step in steps if step["command"] is not None]
    assert len(commands) == len(set(commands)) >= 2
    for place, step in enumerate(steps, start=1):
        if step["command"] is not None:
            assert f"--config {place} > " in step["command"]
            assert step["config"]["metadata"]["hypothesis"] == f"To learn {step['learns']}."
    (rows,) = (step for step in steps if step["kind"] == "lever" and step["command"])
    assert rows["learns"].startswith("whether 4 rows score less than 8")
    assert carry_out(evsys, project, rows["command"]) == 0
    later = evsys("next", "--json", "--limit", "0").json["steps"]
    assert rows["learns"] not in [step["learns"] for step in later if step["kind"] == "lever"]


def test_levers_that_a_person_has_to_choose_have_no_command(evsys, project):
    supported(evsys, project)
    steps = evsys("next", "--json", "--limit", "0").json["steps"]
    open_ones = [step for step in steps if step["kind"] == "lever" and step["command"] is None]
    assert [step["learns"].partition(" beats")[0] for step in open_ones] == [
        "whether another algorithm",
        "whether another system prompt",
    ]
    assert "needs a decision first" in evsys("next").out


def test_information_per_cost_is_printed(evsys, project):
    supported(evsys, project)
    step = evsys("next", "--json").json["steps"][0]
    assert step["bits_per_hour"] == pytest.approx(step["worth"] / step["seconds"] * 3600, rel=0.01)
    assert f"yields about {step['worth']:g} bits, {step['bits_per_hour']:.3g} bits/h" in evsys("next").out


def test_a_hypothesis_whose_test_failed_is_proposed_until_one_answers_it(evsys, project):
    torn = CONFIG.replace("path: train.jsonl", "path: torn.jsonl")
    (project / "torn.jsonl").write_text('{"prompt": \n', encoding="utf-8")
    ran(evsys, project, torn)
    (step,) = (step for step in evsys("next", "--json").json["steps"] if step["kind"] == "hypothesis")
    assert step["learns"] == "whether it holds: A small rate learns more."
    assert step["needs"].startswith("another try without what stopped it: ")
    assert step["command"] is None
    ran(evsys, project, CONFIG)
    assert "hypothesis" not in [step["kind"] for step in evsys("next", "--json").json["steps"]]
