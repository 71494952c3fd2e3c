"""What plugins do against their contract ends in a result that says so, never in a quiet or an unexplained end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evsys.errors import ConfigError

SECRET = "s3cret-Value-0123456789"


def with_code(project, code: str, *changes: tuple[str, str], run_text, extra: str = ""):
    project.code("plugins", code)
    return project.experiment("run:" + run_text(*changes), extra=extra).run()


def algorithm(body: str) -> str:
    return (
        "import asyncio\nfrom evsys_sdk import SFT, register_algorithm\n\n"
        f"@register_algorithm('odd')\nclass Odd(SFT):\n    {body}\n"
    )


def backend(body: str) -> str:
    return (
        "from evsys_sdk import register_backend\nfrom evsys_backend_mock import MockBackend\n\n"
        f"@register_backend('odd')\nclass Odd(MockBackend):\n    {body}\n"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("async def train(self, ctx): return 'done'", "train returned str, not a RunResult"),
        ("async def train(self, ctx): return None", "train returned NoneType, not a RunResult"),
        ("def train(self, ctx): return 'done'", "train isn't async"),
    ],
)
def test_an_algorithm_that_returns_something_else_breaks_its_contract(project, run_text, body, said):
    result = with_code(project, algorithm(body), ("kind: sft", "kind: odd"), run_text=run_text)
    assert (result.status, result.exit_code) == ("failed", 3)
    assert said in result.arms[0].failure.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "async def prepare(self, *a, **k): return None",
            "prepare returned NoneType, which has no forward_backward",
        ),
        ("def prepare(self, *a, **k): return self", "prepare isn't async"),
    ],
)
def test_a_backend_that_prepares_something_else_breaks_its_contract(project, run_text, body, said):
    result = with_code(project, backend(body), ("kind: mock", "kind: odd"), run_text=run_text)
    assert (result.status, result.exit_code) == ("failed", 3)
    assert said in result.arms[0].failure.message


def test_a_failed_teardown_does_not_hide_why_preparing_failed(project, run_text):
    body = (
        "async def prepare(self, *a, **k): raise RuntimeError('no card')\n"
        "    async def teardown(self, client): raise RuntimeError('nothing to free')"
    )
    (arm,) = with_code(project, backend(body), ("kind: mock", "kind: odd"), run_text=run_text).arms
    assert "no card" in arm.failure.message
    assert any("nothing to free" in warning for warning in arm.warnings)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("async def build_batch(self, step_idx): raise SystemExit(0)", "SystemExit: 0"),
        ("async def build_batch(self, step_idx): raise asyncio.CancelledError", "cancelled its own task"),
    ],
)
def test_a_plugin_that_tries_to_leave_fails_its_arm_and_the_others_go_on(project, run_text, body, said):
    project.code("plugins", algorithm(body))
    text = "matrix:\n  axes:\n    algorithm.kind: [odd, sft]\nbase_run:" + run_text()
    result = project.experiment(text).run()
    assert (result.status, result.exit_code) == ("completed", 1)
    assert [arm.status for arm in result.arms] == ["failed", "completed"]
    assert said in result.arms[0].failure.message


def test_an_algorithm_that_exits_when_it_is_asked_what_it_trains_is_a_problem_of_the_file(project, run_text):
    project.code("plugins", algorithm("def lora(self): raise SystemExit(0)"))
    with pytest.raises(ConfigError, match="can't report its trained parameters: SystemExit: 0"):
        project.experiment("run:" + run_text(("kind: sft", "kind: odd")))


def test_prose_that_is_no_text_is_left_out_and_told_of(project, run_text):
    code = (
        "from evsys_sdk import register_callback\n\n@register_callback('odd')\nclass Odd:\n"
        "    def evsys_write_conclusion(self, result, conclusion):\n        return 5\n"
    )
    result = with_code(project, code, run_text=run_text, extra="callbacks: [{kind: odd}]\n")
    assert result.status == "completed"
    assert "evsys_write_conclusion gave int, not a string; it was left out" in result.warnings


def test_what_the_file_asks_of_the_environment_is_in_no_result_and_no_file(
    project, run_text, monkeypatch, capsys
):
    monkeypatch.setenv("HARMLESS_NAME", SECRET)
    code = (
        "import attrs\nfrom evsys_sdk import register_callback\n\n@register_callback('odd')\nclass Odd:\n"
        "    @attrs.frozen(kw_only=True)\n    class Config:\n        login: str\n"
        "    def __init__(self, login):\n        self.login = login\n"
        "    def evsys_step_finished(self, ctx, step, metrics):\n"
        "        ctx.log.info('sent', to=self.login)\n        raise OSError(f'401 for {self.login}')\n"
    )
    extra = "callbacks: [{kind: odd, params: {login: '${HARMLESS_NAME}'}}]\n"
    result = with_code(project, code, run_text=run_text, extra=extra)
    assert any("401 for [redacted] (6 times)" in warning for warning in result.warnings)
    files = [path for path in Path(project.root).rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in capsys.readouterr().err


def test_a_secret_given_by_an_override_is_in_no_file(project, run_text):
    from evsys_runtime.experiment import Experiment

    code = (
        "import attrs\nfrom evsys_sdk import register_callback\n\n@register_callback('odd')\nclass Odd:\n"
        "    @attrs.frozen(kw_only=True)\n    class Config:\n        api_key: str = ''\n"
        "    def __init__(self, api_key):\n        self.api_key = api_key\n"
        "    def evsys_step_finished(self, ctx, step, metrics):\n        raise OSError(f'401 for {self.api_key}')\n"
    )
    project.code("plugins", code)
    path = project.config("run:" + run_text(), extra="callbacks: [{kind: odd, params: {api_key: x}}]\n")
    result = Experiment.from_yaml(path, overrides=[f"callbacks[0].params.api_key={SECRET}"], quiet=True).run()
    facts = json.loads((Path(result.directory) / "experiment.json").read_text(encoding="utf-8"))
    assert facts["overrides"] == ["callbacks[0].params.api_key=[redacted]"]
    files = [path for path in Path(project.root).rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
