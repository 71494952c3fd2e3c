"""The orchestrator's module: its names, what replaces its parts, and how an experiment ends."""

from __future__ import annotations

import pytest

import evsys_sdk.experiment
from evsys_sdk import (
    Benchmark,
    Completion,
    ConfigError,
    Experiment,
    ExperimentConfig,
    InferenceClient,
    Message,
    RunConfig,
)
from evsys_sdk.experiment import ArmResult, EvalResult, ExperimentResult
from evsys_sdk.protocols import RunResult
from evsys_sdk.runner import run_experiment

METADATA = """
metadata:
  hypothesis: "A client that knows the answer scores best."
  tags: ["sft", "tiny"]
  project_goal_id: "goal-1"
  success_metric: "mean_reward"
  benchmark:
    path: "data/val"
    breakdown_keys: ["tool"]
"""
RUNS = """
runs:
  - &fine
    name: fine
    data: {path: data/train.jsonl, transforms: [{kind: jsonl_to_chat, params: {user_template: "{query}", assistant_template: "{tool}"}}]}
    model: {name: evsys/tiny}
    algorithm: {kind: sft, params: {max_steps: 2, batch_size: 4}}
    backend: {kind: mock}
"""
BAD = """
  - <<: *fine
    name: bad
    algorithm: {kind: sft, params: {max_steps: 2, batch_size: 4, max_length: 2}}
"""


class Says:
    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(self, messages, sampling, *, n=1, tools=()):
        return [Completion(message=Message(role="assistant", content=self.text), finish_reason="stop")] * n


class Store:
    def pull(self, ref):
        return [{"query": f"{ref} {n}", "tool": "mail"} for n in range(8)]


def last(arm: ArmResult) -> EvalResult:
    return arm.evaluations[-1]


def test_the_module_has_the_documented_names():
    wanted = {"ArmResult", "EvalResult", "Experiment", "ExperimentResult", "TrainFn", "InferenceFactory"}
    assert wanted <= set(evsys_sdk.experiment.__all__)


def test_one_failed_arm_leaves_the_experiment_completed_and_is_named(lab):
    result = lab.run(METADATA + RUNS + BAD)
    assert isinstance(result, ExperimentResult)
    assert [arm.status for arm in result.arms] == ["completed", "failed"]
    assert (result.status, result.failed, result.exit_code) == ("completed", ("bad-s0",), 1)


def test_no_completed_arm_is_a_failed_experiment(lab):
    assert (
        lab.run(METADATA + RUNS.replace("batch_size: 4", "batch_size: 4, max_length: 2")).status == "failed"
    )


def test_the_metadata_ranks_arms_and_breaks_scores_down(lab):
    result = lab.run(METADATA + RUNS)
    assert (result.conclusion.metric, result.best_arm) == ("val.mean_reward", "fine")
    assert set(last(result.arms[0]).breakdown["tool"]) == {"mail", "calendar", "search"}


def test_a_train_fn_gets_the_config_and_returns_results(lab):
    seen: list[ExperimentConfig] = []

    def train_fn(cfg: ExperimentConfig) -> list[RunResult]:
        seen.append(cfg)
        return run_experiment(cfg)

    result = lab.run(METADATA + RUNS, train_fn=train_fn)
    [cfg] = seen
    assert (cfg.name, cfg.metadata.project_goal_id, [run.name for run in cfg.runs or ()]) == (
        "trial",
        "goal-1",
        ["fine"],
    )
    assert result.arms[0].run is not None
    assert result.arms[0].run.steps == 2


def test_a_benchmark_overrides_that_of_the_metadata(lab):
    result = lab.run(METADATA + RUNS, benchmark=Benchmark("mine", path="data/test", limit=10))
    assert {e.benchmark for e in result.arms[0].evaluations} == {"mine"}
    assert last(result.arms[0]).tasks == 10


def test_a_factory_makes_the_client_of_each_completed_arm(lab):
    made: list[tuple[str, str | None]] = []

    def factory(result: RunResult, run: RunConfig) -> InferenceClient:
        made.append((result.run_id, run.name))
        return Says("a")

    result = lab.run(METADATA + RUNS + BAD, inference_factory=factory)
    assert made == [("fine-s0", "fine")]
    assert last(result.arms[0]).metrics["mean_reward"].value == 1.0


def test_all_of_them_work_together(lab):
    def train_fn(cfg):
        return [RunResult(status="completed", steps=7) for _ in cfg.runs]

    result = lab.run(
        METADATA + RUNS.replace("path: data/train.jsonl", "dataset_id: routes-1"),
        store=Store(),
        train_fn=train_fn,
        benchmark=Benchmark("mine", path="data/test"),
        inference_factory=lambda result, run: Says("a" if result.steps == 7 else "b"),
    )
    assert (last(result.arms[0]).step, last(result.arms[0]).metrics["mean_reward"].value) == (7, 1.0)


def test_a_store_serves_a_dataset(lab):
    result = lab.run(METADATA + RUNS.replace("path: data/train.jsonl", "dataset_id: routes-1"), store=Store())
    assert result.status == "completed"


@pytest.mark.parametrize(
    "wrong", [{"train_fn": lambda: 1}, {"inference_factory": lambda r: 1}, {"benchmark": len}, {"store": 3}]
)
def test_what_can_not_be_called_is_refused_before_training(lab, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        lab.experiment(METADATA + RUNS, **wrong)


def test_a_mapping_that_is_no_experiment_is_refused(lab):
    with pytest.raises(ConfigError) as caught:
        Experiment({"version": 1})
    assert len(caught.value.problems) == 2


def test_api_models_are_scored_beside_the_arms(lab):
    lab.write(
        "src/clients.py",
        """
from evsys_sdk import Completion, Message, register_inference


@register_inference("oracle")
class Oracle:
    async def generate(self, messages, sampling, *, n=1, tools=()):
        return [Completion(message=Message(role="assistant", content="a"), finish_reason="stop")] * n
""",
    )
    text = METADATA.replace('path: "data/val"', 'path: "data/val"\n    models: [oracle]')
    [arm] = lab.run(text + RUNS).arms
    [api] = [e for e in arm.evaluations if e.model is not None]
    assert (api.model, api.metrics["mean_reward"].value) == ("oracle", 1.0)


LAUNCH = """
from evsys_sdk import Experiment
import src

print(Experiment.from_yaml("config.yaml", quiet=True).run().status)
"""


def test_a_launch_script_imports_the_code_of_its_project(lab):
    code = "from evsys_sdk import register_verifier_fn\n\n\n@register_verifier_fn('always')\ndef always(o, e, p):\n    return 0.5\n"
    lab.write("src/verifiers.py", code)
    task = {"verifier": {"name": "always"}}
    lab.write(
        "data/val/tasks.jsonl",
        [
            {"task_id": f"t{n}", "instruction": f"x {n}", "metadata": {"tool": "mail"}, **task}
            for n in range(12)
        ],
    )
    lab.config(METADATA + RUNS, "experiments/20260101_routes/config.yaml")
    script = lab.write("experiments/20260101_routes/run.py", LAUNCH)
    done = lab.python(script)
    assert done.stdout.splitlines()[-1:] == ["completed"], done.stderr
