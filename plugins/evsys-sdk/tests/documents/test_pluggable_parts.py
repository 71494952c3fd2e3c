"""What can be plugged in, and what is built in: backends, recipes, continual learning, stores, callbacks, clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from evsys_sdk import Experiment, Registry

CHAT = """{path: data/train.jsonl, transforms: [{kind: jsonl_to_chat, params: {user_template: "{query}", assistant_template: "{tool}"}}]}"""
SFT = "{kind: sft, params: {max_steps: 2, batch_size: 4}}"


def text(*, data=CHAT, algorithm=SFT, backend="{kind: mock}", more=""):
    return f"run:\n  data: {data}\n  model: {{name: evsys/tiny}}\n  algorithm: {algorithm}\n  backend: {backend}\n{more}"


@pytest.fixture
def demonstrations(lab):
    rows = [{"prompt": f"route {n}", "demonstration": "mail"} for n in range(8)]
    lab.write("data/prompts.jsonl", rows)
    return lab


def test_one_line_switches_the_backend(lab):
    assert lab.run(text()).status == "completed"
    assert lab.run(text(backend="{kind: local}")).status == "completed"


@pytest.mark.parametrize("provider", ["tinker", "skyrl"])
def test_one_line_switches_the_provider(lab, provider, monkeypatch):
    pytest.importorskip("tinker")
    monkeypatch.setenv("TINKER_API_KEY", "k")
    backend = f'{{kind: tinker, params: {{provider: {provider}, base_url: "http://127.0.0.1:9"}}}}'
    assert lab.experiment(text(backend=backend)).plan.arms[0].run.backend.params["provider"] == provider


@pytest.mark.parametrize("module", ["sft", "rl", "sdft", "opd", "dpo"])
def test_each_recipe_can_be_imported_to_subclass_it(module):
    from importlib import import_module

    cls = getattr(import_module(f"evsys_sdk.algorithms.{module}"), module.upper())
    assert Registry().get("algorithm", module) is cls


def test_distillation_from_demonstrations(demonstrations):
    algorithm = "{kind: sdft, params: {max_steps: 1, batch_size: 4, max_tokens: 4}}"
    result = demonstrations.run(text(data="{path: data/prompts.jsonl}", algorithm=algorithm))
    assert result.status == "completed", result.arms[0].failure


def test_datasets_are_learnt_one_after_another_each_from_the_weights_before(lab):
    rows = lab.rows(lab.root / "data/train.jsonl")
    lab.write("data/more.jsonl", rows[:12])
    base = text().replace(f"  data: {CHAT}\n", "")
    continual = f"continual: {{datasets: [{CHAT}, {CHAT.replace('train', 'more')}]}}\n"
    result = lab.run(base + continual)
    assert [arm.status for arm in result.arms] == ["completed", "completed"]
    assert result.arms[1].stage is not None
    assert "begins_with" in (Path(result.arms[1].run_dir) / "run.json").read_text(encoding="utf-8")


def test_early_stopping_is_a_callback(lab):
    stop = "callbacks: [{kind: early_stopping, params: {monitor: loss, patience: 1, min_delta: 100}}]\n"
    [arm] = lab.run(text(algorithm="{kind: sft, params: {max_steps: 9, batch_size: 4}}", more=stop)).arms
    assert (arm.status, arm.run.steps < 9) == ("completed", True)
    assert arm.run.stop_reason


def test_a_client_of_the_project_answers_a_benchmark(lab):
    lab.write(
        "src/clients.py",
        """
from evsys_sdk import Completion, Message, register_inference


@register_inference("fixed")
class Fixed:
    async def generate(self, messages, sampling, *, n=1, tools=()):
        return [Completion(message=Message(role="assistant", content="a"), finish_reason="stop")] * n
""",
    )
    metadata = "metadata: {benchmark: {name: val, path: data/val, inference: {kind: fixed}}}\n"
    [arm] = lab.run(metadata + text()).arms
    assert arm.evaluations[-1].metrics["mean_reward"].value == 1.0


def test_a_store_of_the_project_serves_its_data(lab):
    lab.write(
        "src/stores.py",
        """
from evsys_sdk import register_data_store


@register_data_store("made_up")
class MadeUp:
    async def pull(self, ref):
        return [{"query": f"{ref} {n}", "tool": "mail"} for n in range(8)]
""",
    )
    data = CHAT.replace("path: data/train.jsonl", "dataset_id: routes-1")
    assert lab.run(text(data=data, more="data_store: {kind: made_up}\n")).status == "completed"


def test_a_log_store_gets_what_happens(lab):
    assert (
        lab.run(text(more="log_store: {kind: local, params: {path: logs/all.jsonl}}\n")).status == "completed"
    )
    assert {line["event"] for line in lab.rows(lab.root / "logs/all.jsonl")} >= {"metrics"}


def test_a_log_store_of_the_project_gets_what_happens(lab):
    lab.write(
        "src/logs.py",
        """
from pathlib import Path
from evsys_sdk import register_log_store


@register_log_store("counts")
class Counts:
    def __init__(self) -> None:
        self.count = 0

    async def write(self, record) -> None:
        self.count += 1

    async def close(self) -> None:
        Path("count.txt").write_text(str(self.count))
""",
    )
    assert lab.run(text(more="log_store: {kind: counts}\n")).status == "completed"
    assert int((lab.root / "count.txt").read_text(encoding="utf-8")) > 2


def test_an_experiment_is_one_file(lab):
    path = lab.config(text())
    assert Experiment.from_yaml(path, quiet=True).run().status == "completed"
    assert Experiment(str(path), quiet=True).run().status == "completed"
