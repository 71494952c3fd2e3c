"""A grader that passes everything ends `evsys run` and `evsys eval` before a model is asked, unless that is left out."""

import json

import pytest

VERIFIER = """
from evsys import register_verifier

@register_verifier("always")
def always(model_output, expected, params):
    return 1.0
"""


@pytest.fixture
def lenient(config):
    """The experiment with tasks whose verifier passes everything."""
    (config.parent / "src").mkdir()
    (config.parent / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    (config.parent / "src/verifiers.py").write_text(VERIFIER, encoding="utf-8")
    tasks = [
        {"task_id": f"t{c}", "instruction": f"say {c}", "verifier": {"name": "always", "expected": c}}
        for c in "abcdefghijkl"
    ]
    text = "".join(json.dumps(task) + "\n" for task in tasks)
    (config.parent / "tasks.jsonl").write_text(text, encoding="utf-8")
    return config


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "config.yaml", "-q"),
        ("eval", "m", "tasks.jsonl", "--base-url", "http://127.0.0.1:9/v1"),
        ("benchmark", "run", "tasks.jsonl", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"),
    ],
    ids=["run", "eval", "benchmark run"],
)
def test_it_is_refused_with_file_line_and_task(evsys, lenient, arguments):
    outcome = evsys(*arguments, "--json")
    assert outcome.code == 4
    error = outcome.json["error"]
    assert "verifier 'always' gives full marks to every answer" in error["message"]
    assert "task 'ta' and 11 more" in error["message"]
    assert "--skip-grader-check" in error["hint"]
    plain = evsys(*arguments).err
    assert "tasks.jsonl:1" in plain


def test_it_can_be_run_all_the_same(evsys, lenient):
    outcome = evsys("run", lenient, "-q", "--json", "--full", "--skip-grader-check")
    assert outcome.json["arms"][0]["evaluations"][-1]["metrics"]["mean_reward"]["value"] == 1.0
