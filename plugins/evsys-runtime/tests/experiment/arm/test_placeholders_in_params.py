"""`${NAME}` in params: put in where a plugin is built, and written nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_project import METADATA as SMALL

from evsys.errors import ConfigError
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.data.sources import source_hash
from evsys_runtime.experiment.open_session import bound_benchmarks
from evsys_runtime.experiment.preflight.preview import preview_rows
from evsys_runtime.experiment.state.options import Options
from evsys_std.transforms.filter import Filter

CANARY = "canary-Value-0123456789"

FILTER = "transforms: [{kind: jsonl_to_chat}]"

CODE = """
import os

import attrs
from evsys_sdk import register_agent, register_metric
from evsys_std.agents import ChatAgent


@attrs.frozen(kw_only=True)
class Told:
    login: str
    note: str = "none"


@register_agent("told")
class Agent(ChatAgent):
    Config = Told

    def __init__(self, login, note):
        super().__init__()
        self.right = login == os.environ["LOGIN_NAME"]

    async def run(self, task, model, tools, ctx):
        if not self.right:
            raise OSError("401")
        return await super().run(task, model, tools, ctx)


@register_metric("told")
class Metric:
    Config = Told
    direction = "max"

    def __init__(self, login, note):
        self.right = login == os.environ["LOGIN_NAME"]

    def compute(self, rewards):
        return float(self.right)
"""

METADATA = """
metadata:
  success_metric: val.mean_reward
  benchmark:
    name: val
    path: tasks.jsonl
    max_tokens: 4
    metrics: [mean_reward, {kind: told, params: {login: '${LOGIN_NAME}'}}]
    agent: {kind: told, params: {login: '${LOGIN_NAME}'}}
"""


def filtered(op: str) -> tuple[str, str]:
    transforms = (
        "transforms: [{kind: filter, params: {conditions: "
        f"[{{column: completion, op: '{op}', value: '${{WANT}}'}}]}}}}, {{kind: jsonl_to_chat}}]"
    )
    return FILTER, transforms


def test_a_filter_compares_with_the_value_of_a_variable(project, run_text, monkeypatch):
    monkeypatch.setenv("WANT", "c")
    text = run_text(filtered("=="), ("batch_size: 4", "batch_size: 1"))
    result = project.experiment("run:" + text).run()
    assert result.status == "completed"
    facts = json.loads((Path(result.arms[0].run_dir) / "run.json").read_text(encoding="utf-8"))
    assert facts["data"]["rows"] == 1
    (made,) = [entry for entry in facts["data"]["lineage"] if entry.get("kind") == "filter"]
    assert made["params"]["conditions"][0]["value"] == "${WANT}"
    assert made["source_hash"] == source_hash(Filter)


def test_a_preview_shows_the_rows_that_training_gets(project, run_text, monkeypatch):
    monkeypatch.setenv("WANT", "c")
    plan = load_experiment(project.config("run:" + run_text(filtered("=="))))
    found = preview_rows(plan)
    assert len(found.rows) == 1
    assert sum(found.dropped.values()) == 7
    assert found.not_read == 0


def test_transforms_of_a_benchmark_get_the_value_too(project, monkeypatch):
    monkeypatch.setenv("WANT", "t03")
    metadata = (
        "\nmetadata:\n  success_metric: val.mean_reward\n  benchmark:\n    name: val\n    path: tasks.jsonl\n"
        "    transforms: [{kind: filter, params: {conditions: [{column: task_id, op: '!=', value: '${WANT}'}]}}]\n"
    )
    plan = load_experiment(project.config(metadata=metadata))
    (benchmark,) = bound_benchmarks(plan, Options(quiet=True))
    assert [task.task_id for task in benchmark.tasks] == [f"t{n:02d}" for n in range(12) if n != 3]


@pytest.mark.parametrize("place", ["entry", "run"])
def test_agents_and_metrics_get_the_value_and_no_file_holds_it(project, run_text, monkeypatch, capsys, place):
    monkeypatch.setenv("LOGIN_NAME", CANARY)
    monkeypatch.setenv("WANT", CANARY)
    project.code("plugins", CODE)
    metadata, text = METADATA, run_text(filtered("!="))
    if place == "run":
        metadata = "".join(line for line in METADATA.splitlines(True) if "agent:" not in line)
        text += "  agent: {kind: told, params: {login: '${LOGIN_NAME}'}}\n"
    result = project.experiment("run:" + text, metadata=metadata).run()
    assert result.status == "completed"
    last = result.arms[0].evaluations[-1]
    assert last.metrics["told"].value == 1.0
    assert last.metrics["mean_reward"].value is not None
    assert len(last.task_rewards) == 12
    files = [path for path in Path(project.root).rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    assert CANARY not in capsys.readouterr().err
    record = Path(result.directory)
    for name in ("resolved.json", "runs/run-s0/run.json"):
        assert "${WANT}" in (record / name).read_text(encoding="utf-8"), name


def test_a_value_that_a_plugin_refuses_is_not_shown(project, monkeypatch):
    monkeypatch.setenv("LOGIN_NAME", CANARY)
    code = CODE.replace(
        '        self.right = login == os.environ["LOGIN_NAME"]\n\n    def compute',
        "        if os.environ.get('REFUSE'):\n            raise ValueError(f'no user {login}')\n        self.right = True\n\n    def compute",
    )
    assert code != CODE
    project.code("plugins", code)
    plan = load_experiment(project.config(metadata=METADATA))
    monkeypatch.setenv("REFUSE", "1")
    with pytest.raises(ConfigError) as caught:
        bound_benchmarks(plan, Options(quiet=True))
    assert "no user ${LOGIN_NAME}" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_one_system_prompt_means_the_same_in_a_transform_and_in_an_entry_and_no_file_holds_its_value(
    project, run_text, monkeypatch
):
    monkeypatch.setenv("WANT", CANARY)
    metadata = SMALL.replace("max_tokens: 4", "max_tokens: 4\n    system_prompt: 'say ${WANT}'")
    transforms = FILTER.replace("jsonl_to_chat", "jsonl_to_chat, params: {system_prompt: 'say ${WANT}'}")
    plan = load_experiment(project.config("run:" + run_text((FILTER, transforms)), metadata=metadata))
    assert f"say {CANARY}" in str(preview_rows(plan).rows[0])
    assert [each.system_prompt for each in bound_benchmarks(plan, Options(quiet=True))] == [f"say {CANARY}"]
    result = project.experiment(metadata=metadata).run()
    assert result.status == "completed"
    assert (Path(result.arms[0].run_dir) / "validation/rollouts.jsonl").stat().st_size > 0
    files = [path for path in project.root.rglob("*") if path.is_file()]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
