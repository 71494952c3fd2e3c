"""The design notes: protocols without base classes, one registry for each kind, references by name, two kinds of benchmarks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from evsys_sdk import (
    Benchmark,
    Completion,
    ConfigError,
    Experiment,
    Message,
    Sweep,
    Workspace,
    run_experiment,
    schema_for,
)

RUN = """
run:
  data:
    dataset_name: routes
    transforms: [{kind: jsonl_to_chat, params: {user_template: "{query}", assistant_template: "{tool}"}}]
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {max_steps: 4, batch_size: 4}}
  backend: {kind: mock}
"""
METADATA = """
metadata:
  hypothesis: "A higher LoRA rank routes better."
  tags: [sft, tiny]
  success_metric: val_set.pass@1
  benchmark:
    - name: val_set
      path: data/val
      tags: [val]
      run_every: 2
      metrics: [pass@1]
    - name: full_test
      path: data/test
      tags: [test]
"""
PLAIN_ALGORITHM = """
from evsys_sdk import register_algorithm
from evsys_sdk.protocols import RunResult


@register_algorithm("idle")
class Idle:
    def __init__(self, note: str = "") -> None:
        self.note = note

    async def train(self, ctx) -> RunResult:
        return RunResult(status="completed", steps=0)
"""


class Right:
    async def generate(self, messages, sampling, *, n=1, tools=()):
        return [Completion(message=Message(role="assistant", content="a"), finish_reason="stop")] * n


@pytest.fixture
def routes(lab):
    """The project with a versioned dataset `routes`."""
    folder = lab.root / "data/datasets/routes/v1"
    folder.mkdir(parents=True)
    (lab.root / "data/train.jsonl").rename(folder / "train.jsonl")
    return lab


def test_a_new_project_has_the_documented_folders(lab):
    tree = ["README.md", "src/__init__.py", "src/verifiers.py", "src/metrics.py", "src/transforms.py"]
    tree += [f"data/{name}" for name in ("raw", "fetch", "process", "datasets", "benchmark", "validation")]
    assert [name for name in ("pyproject.toml", *tree) if not (lab.root / name).exists()] == []


def test_a_new_experiment_has_a_config_and_a_launch_script(lab):
    done = lab.evsys("new-experiment", "rank-sweep")
    assert done.returncode == 0, done.stderr
    [folder] = lab.root.glob("experiments/*rank*")
    assert re.fullmatch(r"\d{8}_rank[-_]sweep", folder.name)
    assert {path.name for path in folder.iterdir()} >= {"config.yaml", "run.py"}


def test_a_plain_class_is_an_algorithm(routes):
    routes.write("src/algorithms.py", PLAIN_ALGORITHM)
    assert (
        routes.run(RUN.replace("{kind: sft, params: {max_steps: 4, batch_size: 4}}", "{kind: idle}")).status
        == "completed"
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("algorithm", "sft"),
        ("verifier", "exact_match"),
        ("transform", "jsonl_to_chat"),
        ("backend", "tinker"),
    ],
)
def test_schema_for_describes_the_params_of_a_plugin(kind, name):
    pytest.importorskip("evsys_backend_tinker") if name == "tinker" else None
    schema = schema_for(kind, name)
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)


def test_misspelt_keys_are_refused_with_a_suggestion(routes):
    with pytest.raises(ConfigError, match="did you mean 'hypothesis'"):
        routes.experiment(METADATA.replace("hypothesis:", "hypothesys:") + RUN)


def test_the_version_may_be_left_out(routes):
    path = routes.write("plain.yaml", f"name: trial\n{RUN}")
    assert Experiment.from_yaml(path, quiet=True).run().status == "completed"


def test_a_matrix_a_sweep_and_written_out_runs_are_the_same_arms(routes):
    axes = {"algorithm.params.lora_rank": [4, 8], "algorithm.params.learning_rate": [0.01]}
    base = routes.experiment(RUN).plan.arms[0].tree
    base = {key: value for key, value in base.items() if key != "name"}
    sweep = Sweep(axes, base_run=base)
    of_a_file = routes.experiment(f"matrix: {json.dumps({'axes': axes, 'base_run': base})}\n").plan
    of_a_sweep = Experiment({"name": "trial", "matrix": sweep}).plan
    written_out = Experiment({"name": "trial", "runs": list(sweep.runs)}).plan
    assert (
        len(
            {
                tuple((arm.name, arm.digest) for arm in plan.arms)
                for plan in (of_a_file, of_a_sweep, written_out)
            }
        )
        == 1
    )


def test_the_inner_runner_takes_a_config_and_gives_a_result_for_each_arm(routes):
    plan = routes.experiment(RUN).plan
    [result] = run_experiment(plan.experiment)
    assert (result.status, result.steps) == ("completed", 4)


def test_a_run_persists_its_result(routes):
    result = routes.run(RUN)
    kept = json.loads((Path(result.arms[0].run_dir) / "run_result.json").read_text(encoding="utf-8"))
    assert (kept["status"], kept["run"]["steps"]) == ("completed", 4)


def test_a_score_that_fails_does_not_fail_the_run(routes):
    routes.write(
        "src/verifiers.py",
        "from evsys_sdk import register_verifier_fn\n\n\n@register_verifier_fn('down')\n"
        "def down(model_output, expected, params):\n    raise RuntimeError('down')\n",
    )
    routes.write(
        "data/val/tasks.jsonl",
        [{"task_id": f"t{n}", "instruction": "x", "verifier": {"name": "down"}} for n in range(12)],
    )
    [arm] = routes.run(METADATA + RUN, skip_grader_check=True).arms
    assert (arm.status, arm.run.status, arm.run.steps) == ("completed", "completed", 4)
    assert {e.status for e in arm.evaluations if e.benchmark == "val_set"} != {"completed"}


def test_tags_and_run_every_tell_validation_from_the_final_test(routes):
    [arm] = routes.run(METADATA + RUN).arms
    steps = {(e.benchmark, e.split): [] for e in arm.evaluations}
    for e in arm.evaluations:
        steps[e.benchmark, e.split].append(e.step)
    assert steps[("val_set", "val")] == [0, 2, 4]
    assert steps[("full_test", "test")][-1] == 4


def test_curves_are_called_by_split_entry_and_metric(routes):
    [arm] = routes.run(METADATA + RUN).arms
    names = {
        phase: {
            name
            for line in routes.rows(Path(arm.run_dir) / phase / "metrics.jsonl")
            for name in line["values"]
        }
        for phase in ("validation", "test")
    }
    assert "val/val_set/pass@1" in names["validation"]
    assert "test/full_test/mean_reward" in names["test"]


def test_a_test_entry_steers_nothing(routes):
    with pytest.raises(ConfigError, match="test"):
        routes.experiment(METADATA.replace("val_set.pass@1", "full_test.mean_reward") + RUN)


def test_datasets_and_benchmarks_are_pulled_by_name_into_the_cache(routes):
    routes.write(
        "data/benchmark/final/tasks.jsonl",
        (routes.root / "data/test/tasks.jsonl").read_text(encoding="utf-8"),
    )
    workspace = Workspace(".")
    rows, tasks = workspace.pull_dataset("routes"), workspace.pull_benchmark("final")
    assert (rows.manifest["rows"] if hasattr(rows, "manifest") else len(list(rows.rows()))) == 24
    assert len(list(tasks.rows())) == 12
    assert rows.path.is_relative_to(routes.root / ".evsys")
    assert workspace.pull_dataset(rows.id).path == rows.path


@pytest.mark.parametrize("is_async", [False, True])
def test_a_workspace_pulls_what_it_lacks_from_a_store_once(lab, is_async):
    asked = []

    class Plain:
        def pull(self, ref):
            asked.append(ref)
            return [{"query": ref, "tool": "mail"}]

    class Async(Plain):
        async def pull(self, ref):
            return super().pull(ref)

    workspace = Workspace(".", store=Async() if is_async else Plain())
    first, again = workspace.pull_dataset("remote-1"), Workspace(".").pull_dataset("remote-1")
    assert list(again.rows()) == list(first.rows()) == [{"query": "remote-1", "tool": "mail"}]
    assert workspace.pull_benchmark("remote-2", raw=True).path.is_relative_to(
        lab.root / ".evsys/cache/benchmarks"
    )
    assert asked == ["remote-1", "remote-2"]


def test_a_path_beside_a_name_is_the_offline_fallback(routes):
    entry = "benchmark: {id: not-pulled-yet, path: data/test, metrics: [pass@1], breakdown_keys: [tool]}"
    [arm] = routes.run(f"metadata:\n  {entry}\n{RUN}").arms
    last = arm.evaluations[-1]
    assert (last.tasks, sorted(last.breakdown["tool"])) == (12, ["calendar", "mail", "search"])


def test_a_benchmark_scores_a_client(lab):
    score = Benchmark(path="data/test", metrics=["pass@1"]).score(Right())
    assert score.metrics["pass@1"].value == 1.0


def test_a_resumed_experiment_has_nothing_left_to_do(routes):
    result = routes.run(METADATA + RUN)
    done = routes.evsys("resume", result.experiment_id)
    assert done.returncode == 0, done.stderr
