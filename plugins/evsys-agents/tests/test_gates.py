"""The gates refuse what spoils an experiment, and let everything else pass."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from evsys_agents.calls import call_of
from evsys_agents.gates import Veto, asked_gates, vetoes_of
from evsys_agents.project import LEASE_SECONDS, Project


def vetoes(project: Project, tool: str = "Bash", **arguments: Any) -> list[Veto]:
    call = call_of({"tool_name": tool, "tool_input": arguments, "cwd": str(project.root)})
    return list(vetoes_of(call, project, []))


CHANGES = [
    ("Edit", {"file_path": "data/validation/val/tasks.jsonl"}),
    ("Write", {"file_path": "data/validation/val/new.jsonl"}),
    ("Write", {"file_path": "src/verifiers.py"}),
    ("apply_patch", {"command": "*** Update File: src/verifiers.py\n"}),
    ("Bash", {"command": "echo x >> data/validation/val/tasks.jsonl"}),
    ("Bash", {"command": "sed -i s/a/b/ data/validation/val/tasks.jsonl"}),
    ("Bash", {"command": "rm -rf data/validation"}),
    ("Bash", {"command": "git checkout src/verifiers.py"}),
    ("Bash", {"command": "python fix.py --out=data/validation/val/tasks.jsonl"}),
]


@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
def test_a_benchmark_or_verifier_of_a_running_experiment_is_not_changed(
    project: Project, running: str, tool: str, arguments: dict[str, str]
):
    (veto,) = vetoes(project, tool, **arguments)
    assert (veto.gate, veto.experiment) == ("benchmark", running)
    assert running in veto.reason


@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
def test_it_may_be_changed_when_nothing_runs(project: Project, tool: str, arguments: dict[str, str]):
    assert vetoes(project, tool, **arguments) == []


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "data/validation/val/tasks.jsonl"}),
        ("Bash", {"command": "head -3 data/validation/val/tasks.jsonl | jq ."}),
        ("Bash", {"command": "git diff data/validation"}),
        ("Bash", {"command": "sed s/a/b/ data/validation/val/tasks.jsonl"}),
        ("Edit", {"file_path": "src/transforms.py"}),
        ("Write", {"file_path": "data/validation/val2/tasks.jsonl"}),
        ("Write", {"file_path": "/elsewhere/tasks.jsonl"}),
        ("Bash", {"command": "evsys run experiments/first/config.yaml"}),
        ("Glob", {"path": "data/benchmark"}),
    ],
)
def test_everything_else_passes_while_it_runs(
    project: Project, running: str, tool: str, arguments: dict[str, str]
):
    assert vetoes(project, tool, **arguments) == []


def test_a_verifier_that_no_task_names_may_be_changed(project: Project, running: str):
    (project.root / "src/verifiers.py").write_text('@register_verifier_fn("other")\ndef other(): ...\n')
    assert vetoes(project, "Edit", file_path="src/verifiers.py") == []


def test_a_link_to_a_benchmark_is_the_benchmark(project: Project, running: str):
    (project.root / "link.jsonl").symlink_to(project.root / "data/validation/val/tasks.jsonl")
    assert vetoes(project, "Edit", file_path="link.jsonl") == []  # the link itself may be replaced
    (project.root.parent / "other").symlink_to(project.root)
    place = str(project.root.parent / "other/data/validation/val/tasks.jsonl")
    assert [veto.gate for veto in vetoes(project, "Edit", file_path=place)] == ["benchmark"]


def test_an_experiment_whose_process_is_gone_runs_no_longer(project: Project, running: str):
    old = time.time() - LEASE_SECONDS - 1
    os.utime(project.experiments / running / ".lock", (old, old))
    assert project.running() == []
    assert vetoes(project, "Edit", file_path="src/verifiers.py") == []


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "data/benchmark/final/tasks.jsonl"}),
        ("Read", {"file_path": "data/datasets/letters/v1/test.jsonl"}),
        ("Grep", {"path": "data/benchmark", "pattern": "x"}),
        ("Bash", {"command": "cat data/benchmark/final/tasks.jsonl"}),
        ("Bash", {"command": "cd data && cat data/benchmark/*/tasks.jsonl"}),
        ("Bash", {"command": "cat data/*/*/tasks.jsonl"}),
        ("Bash", {"command": "grep -r sealed data"}),
        ("Bash", {"command": "cp -r data/benchmark /tmp/x"}),
        ("Bash", {"command": "git show HEAD:data/benchmark/final/tasks.jsonl"}),
        ("Bash", {"command": "python -c 'print(1)' < data/benchmark/final/tasks.jsonl"}),
        ("Read", {"file_path": ".evsys/experiments/x/runs/a-s0/test/rollouts.jsonl"}),
    ],
)
def test_sealed_rows_are_not_read(project: Project, tool: str, arguments: dict[str, str]):
    (veto,) = vetoes(project, tool, **arguments)
    assert veto.gate == "sealed"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Bash", {"command": "ls -la data/benchmark/final"}),
        ("Bash", {"command": "wc -l data/benchmark/final/tasks.jsonl"}),
        ("Bash", {"command": "git add data/benchmark"}),
        ("Bash", {"command": "evsys data check config.yaml"}),
        ("Bash", {"command": "grep -rn register_verifier ."}),
        ("Bash", {"command": "cat data/datasets/letters/v1/train.jsonl"}),
        ("Bash", {"command": "cat data/datasets/*/v1/train.jsonl"}),
        ("Write", {"file_path": "data/benchmark/new/tasks.jsonl"}),
        ("Read", {"file_path": ".evsys/experiments/x/conclusion.json"}),
    ],
)
def test_what_shows_no_sealed_row_passes(project: Project, tool: str, arguments: dict[str, str]):
    assert vetoes(project, tool, **arguments) == []


def test_a_project_names_further_sealed_places(project: Project):
    (project.root / "pyproject.toml").write_text('[tool.evsys]\nsealed = ["held/*.jsonl"]\n')
    assert [veto.gate for veto in vetoes(project, "Read", file_path="held/a.jsonl")] == ["sealed"]
    assert vetoes(project, "Read", file_path="held/a.csv") == []


def test_a_call_asks_only_the_gates_that_concern_it(project: Project):
    def gates(tool: str, **arguments: str) -> list[str]:
        return list(asked_gates(call_of({"tool_name": tool, "tool_input": arguments, "cwd": "/lab"})))

    assert gates("Read", file_path="a") == ["sealed"]
    assert gates("Write", file_path="a") == ["benchmark"]
    assert gates("Bash", command="evsys run c.yaml") == ["benchmark", "sealed", "run"]
    assert gates("WebSearch", query="x") == []
