"""resolved.json: the experiment with every default, the seeds, and no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from evsys_runtime.config.model import BenchmarkConfig, RunConfig
from evsys_runtime.config.resolver import Resolver
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.state.seeds import Seeds

CANARY = "cAnArY-7f3a9b2c1d-Sk"
PLUGINS = """\
import attrs
import pydantic
from evsys_sdk import register_callback

@register_callback("service")
class Service:
    @attrs.frozen(kw_only=True)
    class Config:
        address: str = attrs.field(default="https://example.com", metadata={"aliases": ("url",)})
        api_key: str = "none"
        token: str = "literal"
        tries: int = 3

    def __init__(self, **kw):
        pass

@register_callback("modelled")
class Modelled:
    class Config(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        login: str = ""
        wait: float = 0.5

    def __init__(self, **kw):
        pass
"""


@pytest.fixture
def resolved(project) -> Any:
    def of(text: str | None = None, **options: Any) -> dict[str, Any]:
        result = project.experiment(text, **options).run()
        return json.loads((Path(result.directory) / "resolved.json").read_text(encoding="utf-8"))

    return of


def test_every_key_of_a_run_and_of_its_plugins_is_there_with_its_default(resolved):
    (arm,) = resolved()["arms"]
    run = arm["run"]
    assert run.keys() == {field.name for field in attrs.fields(RunConfig)}
    assert run["name"] == "run"
    assert run["algorithm"]["kind"] == "evsys-algo-sft/sft"
    given = {"learning_rate": 0.05, "steps": 6, "batch_size": 4, "lora_rank": 4}
    assert given.items() <= run["algorithm"]["params"].items()
    assert {"train_on": "all_assistant", "weight_decay": 0.0, "epochs": None}.items() <= run["algorithm"][
        "params"
    ].items()
    assert run["data"]["on_bad_row"] == "error"
    assert run["data"]["transforms"][0]["params"]["missing"] == "error"
    assert run["agent"] == {
        "kind": "evsys-std/chat",
        "params": {"system_prompt": None, "max_turns": None, "tools": []},
    }


def test_the_benchmarks_are_there_as_they_are_scored(resolved):
    tree = resolved()
    (entry,) = tree["benchmarks"]
    assert entry.keys() == {field.name for field in attrs.fields(BenchmarkConfig)} - {"tags"} | {
        "tasks",
        "reward_range",
        "hash",
    }
    assert (entry["name"], entry["tasks"], entry["temperature"], entry["num_samples"]) == ("val", 12, 0.0, 1)
    assert entry["engine"] == {
        "kind": "evsys-std/direct",
        "params": {"max_retries": 0, "retry_wait_seconds": 1.0, "timeout_seconds": None},
    }
    assert entry["metrics"] == [{"kind": "evsys-verifiers-std/mean_reward", "params": {}}]
    assert entry["hash"].startswith("sha256:")
    assert tree["metadata"]["success_metric"] == "val.mean_reward"
    assert (tree["metadata"]["direction"], tree["metadata"]["baseline"]) == ("max", "base_model")


def test_the_seeds_are_those_that_the_arms_run_with(resolved, run_text):
    tree = resolved("n_repeats: 2\nbase_seed: 5\nrun:" + run_text())
    assert [arm["run_id"] for arm in tree["arms"]] == ["run-s0", "run-s1"]
    for repeat, arm in enumerate(tree["arms"]):
        seeds = Seeds(base_seed=5, repeat=repeat)
        assert arm["base_seed"] == 5
        assert arm["seeds"] == {
            name: seeds(name) for name in ("run", "data", "model", "data_order", "evaluation/val")
        }
    (arm,) = resolved("run:\n  seed: 9" + run_text())["arms"]
    assert arm["seeds"]["model"] == Seeds(base_seed=9)("model")


def test_a_resolved_arm_is_a_run_like_any_other(resolved, project):
    run = resolved()["arms"][0]["run"]
    again = load_experiment(project.config(f"run: {json.dumps(run)}\n"))
    assert Resolver(again.registry).fields(again.arms[0].run) == run


def test_variables_stay_unresolved_and_secrets_are_masked_while_defaults_are_filled_in(
    resolved, project, monkeypatch
):
    monkeypatch.setenv("SERVICE_KEY", CANARY)
    project.code("plugins", PLUGINS)
    extra = (
        "callbacks:\n"
        "  - {kind: service, params: {url: 'https://me:${SERVICE_KEY}@example.com', api_key: '${SERVICE_KEY}'}}\n"
        "  - {kind: modelled, params: {login: '${SERVICE_KEY}'}}\n"
    )
    tree = resolved(extra=extra)
    service, modelled = tree["callbacks"]
    assert service["params"] == {
        "address": "https://[redacted]@example.com",
        "api_key": "${SERVICE_KEY}",
        "token": "[redacted]",
        "tries": 3,
    }
    assert modelled["params"] == {"login": "${SERVICE_KEY}", "wait": 0.5}
    assert CANARY not in json.dumps(tree)
