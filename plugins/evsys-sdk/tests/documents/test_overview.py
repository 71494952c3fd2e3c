"""The overview: typed rows, `build_batch` as the algorithm, verifiers that score rewards and benchmarks alike, the workspace."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import evsys_sdk
from evsys_sdk import (
    ChatMessagesRow,
    DataError,
    HarborTask,
    PromptExample,
    StoreError,
    Workspace,
    parse_rows,
    register_verifier,
)
from evsys_sdk.algorithms import BaseAlgorithm

DATA = """{path: data/train.jsonl, transforms: [{kind: jsonl_to_chat, params: {user_template: "{query}", assistant_template: "{tool}"}}]}"""
RUN = f"""
run:
  data: {DATA}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: sft, params: {{max_steps: 2, batch_size: 4}}}}
  backend: {{kind: mock}}
"""
STEPS = """
from evsys_sdk import TrainingBatch, register_algorithm
from evsys_sdk.algorithms.sft import SFT


@register_algorithm("counted")
class Counted(SFT):
    async def setup(self, ctx):
        await super().setup(ctx)
        self.built = 0

    async def build_batch(self, step_idx) -> TrainingBatch:
        self.built += 1
        return await super().build_batch(step_idx)

    def step_metrics(self, step_idx, batch, result):
        return {**super().step_metrics(step_idx, batch, result), "built": float(self.built)}
"""
HALF = """
from evsys_sdk import register_verifier


@register_verifier("says_e")
def says_e(model_output, expected, params) -> float:
    return params["least"] + 0.5 * ("e" in model_output)
"""


def test_rows_become_one_of_three_typed_shapes():
    [chat] = parse_rows(
        [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}], "chat"
    )
    [prompt] = parse_rows([{"prompt": "a", "demonstration": "b"}], "prompt")
    [task] = parse_rows(
        [{"task_id": "t", "instruction": "a", "verifier": {"name": "contains", "expected": "b"}}], "task"
    )
    assert (type(chat), type(prompt), type(task)) == (ChatMessagesRow, PromptExample, HarborTask)


def test_a_row_that_does_not_fit_is_named():
    with pytest.raises(DataError, match="messages"):
        list(parse_rows([{"text": "a"}], "chat"))


def test_the_same_rows_with_other_transforms_are_other_arms(lab):
    matrix = """
matrix:
  axes:
    data.transforms[0].params.user_template: ["{query}", "Please {query}"]
"""
    result = lab.run(matrix + RUN.replace("\nrun:", "\nbase_run:"))
    first = [
        lab.rows(Path(arm.run_dir) / "data/training_data.jsonl")[0]["messages"][0]["content"]
        for arm in result.arms
    ]
    assert first == ["send it", "Please send it"]


def test_build_batch_is_the_algorithm(lab):
    lab.write("src/algorithms.py", STEPS)
    [arm] = lab.run(RUN.replace("kind: sft", "kind: counted")).arms
    assert (arm.run.steps, arm.run.metrics["built"]) == (2, 2.0)
    assert inspect.iscoroutinefunction(BaseAlgorithm.build_batch)


@pytest.mark.parametrize(
    ("name", "params", "output", "expected"),
    [
        ("exact_match", {}, "b", "b"),
        ("contains", {}, "a b c", "b"),
        ("regex_match", {}, "abc", "a.c"),
        (
            "tool_calls_match",
            {},
            '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
            [{"name": "f", "arguments": {}}],
        ),
    ],
)
def test_the_common_verifiers_come_with_the_sdk(name, params, output, expected):
    verifier = evsys_sdk.Registry().build("verifier", name, params)
    assert verifier(output, expected, {}) == 1.0


def test_validation_selects_the_checkpoint_that_the_test_scores(lab):
    lab.write(
        "src/metrics.py",
        """
from evsys_sdk import register_metric


@register_metric("fading")
class Fading:
    calls = 0

    def compute(self, task_rewards) -> float:
        Fading.calls += 1
        return 1.0 / Fading.calls
""",
    )
    metadata = """
metadata:
  benchmark:
    - {name: val, path: data/val, run_every: 2, metrics: [fading], max_tokens: 4, temperature: 1.0}
    - {name: final, path: data/test, split: test, max_tokens: 4}
select: {by: val.fading, checkpoint: best}
"""
    text = metadata + RUN.replace("max_steps: 2", "max_steps: 6")
    [arm] = lab.run(text, skip_grader_check=True).arms
    selected = arm.run.selected_checkpoint
    assert (selected.by, selected.step, selected.last_step) == ("val.fading", 2, 6)
    assert [e.step for e in arm.evaluations if e.benchmark == "final"][-1] == 2


def test_a_verifier_class_takes_the_params_of_a_task(lab):
    lab.write(
        "src/verifiers.py",
        """
from evsys_sdk import register_verifier


@register_verifier("at_least")
class AtLeast:
    def __call__(self, model_output, expected, params) -> float:
        return params["least"]
""",
    )
    task = {"instruction": "x", "verifier": {"name": "at_least", "params": {"least": 0.25}}}
    lab.write("data/tasks.jsonl", [{"task_id": f"t{n}", **task} for n in range(12)])
    [arm] = lab.run("metadata: {benchmark: {name: val, path: data/tasks.jsonl, max_tokens: 4}}\n" + RUN).arms
    assert arm.evaluations[-1].metrics["mean_reward"].value == 0.25


def test_a_verifier_is_a_function_that_scores_rewards_and_benchmarks(lab):
    lab.write("src/verifiers.py", HALF)
    task = {"instruction": "say much", "verifier": {"name": "says_e", "params": {"least": 0.25}}}
    lab.write("data/tasks.jsonl", [{"task_id": f"t{n}", **task} for n in range(12)])
    text = """
metadata: {benchmark: {name: val, path: data/tasks.jsonl, max_tokens: 4, metrics: [mean_reward]}}
run:
  data: {path: data/tasks.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: rl, params: {max_steps: 1, groups_per_step: 2, group_size: 4, max_tokens: 4}}
  backend: {kind: mock}
"""
    [arm] = lab.run(text).arms
    assert arm.status == "completed", arm.failure
    assert 0.25 <= arm.evaluations[-1].metrics["mean_reward"].value <= 0.75
    assert 0.25 <= arm.run.metrics["reward"] <= 0.75


def test_a_dataset_is_cached_once_and_its_version_never_changes(lab):
    folder = lab.root / "data/datasets/routes/v1"
    folder.mkdir(parents=True)
    (lab.root / "data/train.jsonl").rename(folder / "train.jsonl")
    entry = Workspace(".").pull_dataset("routes")
    assert [path.name for path in sorted(entry.path.parent.iterdir())] == ["manifest.json", "rows.jsonl"]
    (folder / "train.jsonl").write_text('{"query": "other"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="isn't what it was"):
        Workspace(".").pull_dataset("routes")


def test_a_cache_entry_that_was_cut_off_is_never_taken_for_a_dataset(lab):
    entry = Workspace(".").pull_dataset("turn")
    entry.path.chmod(0o644)
    entry.path.write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="corrupt"):
        Workspace(".").pull_dataset(entry.id)


def test_every_kind_has_its_decorator():
    kinds = "algorithm backend transform data_store log_store metric verifier inference".split()
    assert all(callable(getattr(evsys_sdk, f"register_{kind}")) for kind in kinds)
    registry = evsys_sdk.Registry()
    with evsys_sdk.use_registry(registry):
        register_verifier("mine")(lambda model_output, expected, params: 1.0)
    assert registry.build("verifier", "mine")("a", "b", {}) == 1.0


def test_the_command_line_validates_runs_and_discovers(lab):
    config = str(lab.config(RUN))
    assert lab.evsys("validate", config).returncode == 0
    assert lab.evsys("run", config, "--quiet").returncode == 0
    assert "sft" in lab.evsys("list", "algorithm").stdout
    assert '"steps"' in lab.evsys("schema", "algorithm", "sft").stdout


def test_repeats_and_a_sweep_are_compared_on_the_success_metric(lab):
    metadata = (
        "metadata: {success_metric: val.mean_reward, benchmark: {name: val, path: data/val, max_tokens: 4}}\n"
    )
    matrix = "n_repeats: 2\nmatrix: {axes: {algorithm.params.learning_rate: [0.01, 0.1]}}\n"
    result = lab.run(metadata + matrix + RUN.replace("\nrun:", "\nbase_run:"))
    assert len(result.arms) == 4
    assert [c.n_seeds for c in result.conclusion.comparisons] == [2, 2]
    assert result.best_arm is not None
