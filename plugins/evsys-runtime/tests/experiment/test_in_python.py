"""Experiments written in Python, and what may take the place of their parts, each alone and together."""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path

import attrs
import numpy as np
import pytest
from small_project import forgotten

from evsys.errors import ConfigError, PluginContractError, RunError
from evsys.types import Completion, EvaluationResult, Message, MetricValue, RunResult
from evsys_record.history import Question, ask
from evsys_record.index import Index
from evsys_runtime.config.model import BenchmarkConfig, ExperimentConfig, MatrixConfig, PluginSpec, RunConfig
from evsys_runtime.config.python_config import plain_tree
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment import Benchmark, Experiment, Sweep, arun_experiment, run_experiment
from evsys_runtime.experiment.state.benchmark import BenchmarkKeys

RUN = {
    "data": {"source_kind": "jsonl", "path": "train.jsonl", "transforms": [{"kind": "jsonl_to_chat"}]},
    "model": {"name": "evsys/tiny"},
    "algorithm": {
        "kind": "sft",
        "params": {"learning_rate": 0.05, "steps": 6, "batch_size": 4, "lora_rank": 4},
    },
    "backend": {"kind": "mock"},
}
METADATA = {
    "success_metric": "val.mean_reward",
    "benchmark": {"name": "val", "path": "tasks.jsonl", "max_tokens": 4},
}
TWO = """
runs:
  - {name: fine, data: &data {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}, model: {name: evsys/tiny}, backend: {kind: mock},
     algorithm: {kind: sft, params: {learning_rate: 0.05, steps: 4, batch_size: 4}}}
  - {name: bad, data: *data, model: {name: evsys/tiny}, backend: {kind: mock},
     algorithm: {kind: sft, params: {learning_rate: 0.05, steps: 4, batch_size: 4, max_length: 2}}}
"""


class Parrot:
    def __init__(self, text="a"):
        self.text, self.asked = text, 0

    async def generate(self, messages, sampling, *, n=1, tools=()):
        self.asked += 1
        return [Completion(message=Message(role="assistant", content=self.text), finish_reason="stop")] * n


class Store:
    def __init__(self):
        self.asked = []

    def pull(self, ref):
        self.asked.append(ref)
        return [{"prompt": f"say {c}", "completion": c} for c in "abcdefgh"]


@pytest.fixture
def inside(project, monkeypatch):
    monkeypatch.chdir(project.root)
    return project


def config(**keys):
    return {"name": "trial", "metadata": METADATA, "run": RUN} | keys


def score(result, arm=0):
    last = result.arms[arm].evaluations[-1]
    return last.step, last.metrics["mean_reward"].value


def no_arguments():
    return []


# --- what an experiment is made of ------------------------------------------------------------------------------


def test_a_mapping_is_checked_like_a_file(inside):
    with pytest.raises(ConfigError) as caught:
        Experiment({"version": 1})
    assert [(p.path, p.source, p.line) for p in caught.value.problems] == [
        ("$", "experiment", None),
        ("$.name", "experiment", None),
    ]


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"name": 3}, "$.name", "expected"),
        ({"nmae": "x"}, "$.nmae", "unknown key 'nmae'"),
        ({"base_seed": float("nan")}, "$.base_seed", "nan is not a finite number"),
        (
            {"description": object()},
            "$.description",
            "expected text, a number, a list or a mapping, got object",
        ),
        ({"metadata": {3: "x"}}, "$.metadata", "expected text as a key, got 3"),
        ({"metadata": {"benchmark": {"path": "no.jsonl"}}}, "$.metadata.benchmark.path", "no.jsonl"),
    ],
)
def test_what_is_wrong_with_a_mapping_is_named_by_its_path(inside, change, path, message):
    with pytest.raises(ConfigError) as caught:
        Experiment(config(**change))
    assert [p.path for p in caught.value.problems if message in p.message] == [path]


def test_a_mapping_trains_what_its_file_trains(inside):
    of_a_file = inside.experiment().run()
    result = Experiment(config(), quiet=True).run()
    assert [arm.identity for arm in result.arms] == [arm.identity for arm in of_a_file.arms]
    assert score(result) == score(of_a_file)


def test_a_mapping_is_recorded_as_a_file_that_runs(inside):
    result = Experiment(config(), quiet=True).run()
    plan = load_experiment(Path(result.directory) / "config.yaml", project_root=inside.root)
    assert plan.document.tree == config()


def test_numbers_of_numpy_paths_and_tuples_become_plain_values():
    given = {"a": np.float32(0.5), "b": (np.int64(3), Path("x") / "y"), "c": np.arange(2)}
    assert plain_tree(given) == {"a": 0.5, "b": [3, "x/y"], "c": [0, 1]}


def test_classes_of_the_model_give_the_keys_that_were_set():
    entry = BenchmarkConfig(path="x", tags=("test",), metrics=(PluginSpec(kind="pass@1"),))
    tree = plain_tree({"benchmark": entry})
    assert tree["benchmark"] == {
        "path": "x",
        "tags": ["test"],
        "metrics": [{"kind": "pass@1"}],
    }


def test_an_experiment_config_runs_as_its_file_does(inside):
    plan = load_experiment(inside.config())
    again = Experiment(plan.experiment, quiet=True).plan
    assert [arm.digest for arm in again.arms] == [arm.digest for arm in plan.arms]
    assert again.experiment == plan.experiment


@pytest.mark.parametrize("form", ["path", "text", "mapping", "config", "plan"])
def test_run_experiment_takes_every_form(inside, form):
    path = inside.config()
    plan = load_experiment(path)
    forms = {"path": path, "text": str(path), "mapping": config(), "config": plan.experiment, "plan": plan}
    assert [(r.status, r.steps, r.run_id) for r in run_experiment(forms[form])] == [
        ("completed", 6, "run-s0")
    ]


# --- sweeps -----------------------------------------------------------------------------------------------------

AXES = {"algorithm.params.learning_rate": [0.1, 0.2], "algorithm.params.steps": [1, 2]}


def test_a_sweep_has_the_arms_of_the_matrix(inside):
    sweep = Sweep(
        AXES, base_run=RUN, name_template="lr-{algorithm.params.learning_rate}-{algorithm.params.steps}"
    )
    plan = Experiment(_matrix(sweep)).plan
    of_a_file = load_experiment(inside.config(_yaml(sweep), metadata=""))
    assert [(a.name, a.digest) for a in plan.arms] == [(a.name, a.digest) for a in of_a_file.arms]
    assert [run.name for run in sweep.runs] == [arm.name for arm in plan.arms]
    assert sweep.runs == tuple(arm.run for arm in plan.arms)


def _matrix(sweep):
    return {"name": "trial", "matrix": sweep}


def _yaml(sweep):
    return f"matrix: {json.dumps(plain_tree(sweep))}\n"


def test_a_sweep_is_a_matrix_for_an_experiment_config(inside):
    cfg = ExperimentConfig(name="trial", matrix=Sweep(AXES), base_run=RUN)
    assert len(Experiment(cfg).plan.arms) == 4


def test_a_sweep_says_what_is_wrong_with_it():
    with pytest.raises(ConfigError, match=r"\$\.matrix\.axes"):
        Sweep({"algorithm.params.steps": 3})
    with pytest.raises(ConfigError, match="no 'base_run' to vary"):
        Sweep(AXES).runs  # noqa: B018 - the access is the test
    with pytest.raises(ConfigError, match="isn't JSON|expected text, a number"):
        Sweep({"a": [object()]})


def test_a_sweep_has_the_arguments_that_a_matrix_has_keys():
    names = {field.name for field in attrs.fields(MatrixConfig)}
    assert names == set(Sweep.__init__.__annotations__) - {"return"}


# --- benchmarks -------------------------------------------------------------------------------------------------


def test_a_benchmark_has_the_keys_of_an_entry():
    assert {"name", *BenchmarkKeys.__annotations__} == {field.name for field in attrs.fields(BenchmarkConfig)}


def test_a_benchmark_scores_a_client(inside):
    benchmark = Benchmark(path="tasks.jsonl", metrics=["pass@1", "mean_reward"], num_samples=2)
    right, wrong = benchmark.score(Parrot("a")), benchmark.score(Parrot("b"))
    assert (right.metrics["pass@1"].value, wrong.metrics["pass@1"].value) == (1.0, 0.0)
    assert (right.status, right.model, right.tasks, right.num_samples) == ("completed", None, 12, 2)


def test_a_benchmark_is_found_from_its_root(project):
    assert (
        Benchmark(path="tasks.jsonl", root=project.root).score(Parrot()).metrics["mean_reward"].value == 1.0
    )


def test_a_benchmark_is_scored_by_the_verifiers_of_its_project(inside):
    inside.code(
        "verifiers",
        "from evsys import register_verifier_fn\n@register_verifier_fn('half')\ndef half(o, e, p): return 0.5\n",
    )
    inside.tasks([("t", "say a", "a")], verifier="half")
    assert Benchmark(path="tasks.jsonl").score(Parrot()).metrics["mean_reward"].value == 0.5


def test_a_client_that_fails_is_a_failed_score(inside):
    class Broken:
        async def generate(self, messages, sampling, *, n=1, tools=()):
            raise RuntimeError("down")

    result = Benchmark(path="tasks.jsonl").score(Broken())
    assert (result.status, result.scored) != ("completed", 12)
    assert result.no_score == 12


def test_a_benchmark_is_awaited_inside_a_loop(inside):
    async def inside_a_loop():
        with pytest.raises(RuntimeError, match=r"await benchmark\.ascore"):
            Benchmark(path="tasks.jsonl").score(Parrot())
        return await Benchmark(path="tasks.jsonl").ascore(Parrot())

    assert asyncio.run(inside_a_loop()).metrics["mean_reward"].value == 1.0


def test_what_is_wrong_with_a_benchmark_is_said(inside):
    with pytest.raises(ConfigError, match="unknown key 'metric'"):
        Benchmark(path="x", metric="pass@1")
    with pytest.raises(ConfigError, match="needs a path, an id or a name"):
        Benchmark(metrics=["pass@1"])
    with pytest.raises(PluginContractError, match="which has no method `generate`"):
        Benchmark(path="tasks.jsonl").score(object())


# --- injection --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("train_fn", no_arguments, r"train_fn: no_arguments can't be called as train_fn\(cfg\)"),
        ("train_fn", 3, "train_fn: expected a function, got int object"),
        ("inference_factory", lambda result: None, r"called as inference_factory\(result, run\)"),
        ("benchmark", lambda run: [], "benchmark: expected a Benchmark, got <lambda>"),
        ("store", object(), "store: expected an object with a method"),
        ("store", type("Store", (), {"pull": lambda self: []})(), r"called as store\.pull\(ref\)"),
    ],
)
def test_what_can_not_be_used_is_refused_before_anything_is_trained(project, option, value, message):
    with pytest.raises(ConfigError, match=message):
        project.experiment(**{option: value})
    assert not (project.root / ".evsys").exists()


def raises(*_arguments):
    return 1 // 0


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_train_fn_that_fails_is_named_with_its_line(project, kind):
    async def raises_late(_cfg):
        return 1 // 0

    function = raises if kind == "plain" else raises_late
    line = inspect.getsourcelines(function)[1] + 1
    with pytest.raises(
        RunError, match=rf"train_fn '{function.__name__}' failed at .*\.py:{line}: ZeroDivisionError"
    ):
        project.experiment(train_fn=function).run()


def test_an_inference_factory_that_fails_is_named_with_its_line(project):
    line = inspect.getsourcelines(raises)[1] + 1
    arm = project.experiment(inference_factory=raises).run().arms[0]
    last = arm.evaluations[-1]
    assert last.status == "missing"
    assert f"inference_factory 'raises' failed at {__file__}:{line}: ZeroDivisionError" in str(
        last.failure.message
    )


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([RunResult(status="completed")], "1 result for 2 arms"),
        ([3, 4], "a list with int for 2 arms"),
        (3, "int for 2 arms"),
    ],
)
def test_what_a_train_fn_returned_is_worded_by_its_number(project, results, words):
    text = f"runs:\n- {RUN_A}\n- {RUN_B}\n"
    with pytest.raises(
        PluginContractError, match=f"train_fn returned {words}; it must return one RunResult each"
    ):
        project.experiment(text, metadata="", train_fn=lambda cfg: results).run()


RUN_A, RUN_B = (
    f"{{name: {name}, data: {{path: train.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}, model: {{name: evsys/tiny}}, "
    f"algorithm: {{kind: sft, params: {{learning_rate: {rate}, steps: 2, batch_size: 4}}}}, backend: {{kind: mock}}}}"
    for name, rate in (("a", 0.1), ("b", 0.2))
)


def test_a_store_serves_what_the_project_does_not_have(inside):
    store = Store()
    run = {**RUN, "data": {"dataset_id": "words-1", "transforms": [{"kind": "jsonl_to_chat"}]}}
    assert Experiment(config(run=run), store=store, quiet=True).run().status == "completed"
    assert store.asked == ["words-1"]


def test_a_benchmark_takes_the_place_of_the_entry_of_the_file(project):
    benchmark = Benchmark(path="tasks.jsonl", limit=10, max_tokens=4)
    evaluations = project.experiment(benchmark=benchmark).run().arms[0].evaluations
    assert [(e.benchmark, e.step, e.tasks) for e in evaluations] == [("val", 0, 10), ("val", 6, 10)]


def test_a_benchmark_is_scored_where_the_file_has_none(project):
    benchmark = Benchmark("mine", path="tasks.jsonl", metrics=["pass@1"], max_tokens=4)
    result = project.experiment(metadata="", benchmark=benchmark).run()
    assert [e.benchmark for e in result.arms[0].evaluations] == ["mine"] * 2


def test_a_benchmark_that_lacks_the_success_metric_is_a_problem_of_it(project):
    with pytest.raises(ConfigError, match=r"metadata\.success_metric"):
        project.experiment(benchmark=Benchmark("other", path="tasks.jsonl"))


def test_a_benchmark_replaces_that_of_a_plan(project):
    plan = load_experiment(project.config())
    benchmark = Benchmark(path="tasks.jsonl", limit=10, max_tokens=4)
    assert (
        Experiment(plan, benchmark=benchmark, quiet=True).plan.experiment.metadata.benchmarks[0].limit == 10
    )


def test_an_experiment_resumes_with_its_benchmark_alone(project):
    benchmark = Benchmark(path="tasks.jsonl", limit=10, max_tokens=4)
    result = project.experiment(benchmark=benchmark).run()
    with pytest.raises(ConfigError, match="was launched with benchmark"):
        Experiment.resume(result.directory)
    again = Experiment.resume(result.directory, benchmark=benchmark, quiet=True)
    assert again.run().status == "completed"
    assert again.nothing_to_do


def test_trained_models_are_scored_through_the_client_of_the_factory(project):
    made = []

    def factory(result, run):
        made.append((result.run_id, result.steps, Path(result.final_checkpoint), run))
        return Parrot("a")

    result = project.experiment(
        inference_factory=factory, overrides=["run.algorithm.params.save_every=6"]
    ).run()
    [(run_id, steps, checkpoint, run)] = made
    assert (run_id, steps, run.name, run.algorithm.kind) == ("run-s0", 6, "run", "sft")
    assert isinstance(run, RunConfig)
    assert checkpoint.is_dir()
    assert score(result) == (6, 1.0)


def test_a_score_of_the_last_step_gives_way_to_that_through_the_client(project):
    entry = "{name: val, path: tasks.jsonl, max_tokens: 4, run_every: 3}"
    metadata = f"metadata: {{success_metric: val.mean_reward, benchmark: {entry}}}\n"
    plain = project.experiment(metadata=metadata).run()
    served = project.experiment(metadata=metadata, inference_factory=lambda _result, _run: Parrot("a")).run()
    assert (
        [e.step for e in served.arms[0].evaluations]
        == [e.step for e in plain.arms[0].evaluations]
        == [0, 3, 6]
    )
    assert (score(plain), score(served)) == ((6, 0.0), (6, 1.0))


def test_the_factory_is_called_once_for_each_arm_that_completed(project):
    made = []

    async def factory(result, run):
        made.append(run.name)
        return Parrot()

    result = project.experiment(TWO, inference_factory=factory).run()
    assert made == ["fine"]
    assert [arm.status for arm in result.arms] == ["completed", "failed"]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            lambda _result, _run: None,
            "inference_factory returned NoneType object, which has no method `generate`",
        ),
        (lambda _result, _run: 1 / 0, "division by zero"),
    ],
)
def test_a_factory_that_fails_leaves_a_trained_arm_without_scores(project, factory, message):
    result = project.experiment(inference_factory=factory).run()
    arm = result.arms[0]
    assert (arm.status, arm.run.steps, arm.evaluations[-1].status) == ("completed", 6, "missing")
    assert message in arm.evaluations[-1].failure.message
    assert (result.status, result.exit_code, result.failed) == ("completed", 1, ("run-s0/val",))


def test_a_train_fn_gets_the_experiment_with_its_arms_written_out(project):
    seen = []

    def train_fn(cfg):
        seen.append(cfg)
        return [RunResult(status="completed", steps=3) for _ in cfg.runs]

    result = project.experiment(TWO, extra="n_repeats: 2\n", train_fn=train_fn).run()
    [cfg] = seen
    assert isinstance(cfg, ExperimentConfig)
    assert (cfg.name, cfg.metadata.hypothesis) == ("trial", "it learns")
    assert (
        [run.name for run in cfg.runs]
        == [arm.run_id for arm in result.arms]
        == ["fine-s0", "bad-s0", "fine-s1", "bad-s1"]
    )
    assert [arm.run.steps for arm in result.arms] == [3] * 4
    assert any("fine-s0 isn't scored" in warning for warning in result.warnings)


def test_a_train_fn_may_bring_scores_of_its_own(project):
    def evaluation(step, value):
        return EvaluationResult(
            benchmark="val",
            split="val",
            step=step,
            status="completed",
            metrics={"mean_reward": MetricValue(value=value)},
            scored=12,
            task_rewards={f"t{i}": (value,) for i in range(12)},
        )

    def train_fn(cfg):
        scores = (evaluation(0, 0.0), evaluation(3, 1.0))
        return [RunResult(status="completed", steps=3, evaluations=scores) for _ in cfg.runs]

    result = project.experiment(train_fn=train_fn).run()
    assert (result.conclusion.verdict, result.best_arm, result.best_score) == ("SUPPORTED", "run", 1.0)


def test_an_async_train_fn_is_scored_through_the_client_of_the_factory(project):
    async def train_fn(cfg):
        return [RunResult(status="completed", steps=3)]

    result = project.experiment(train_fn=train_fn, inference_factory=lambda result, run: Parrot()).run()
    arm = result.arms[0]
    assert score(result) == (3, 1.0)
    assert arm.usage.seconds == sum(e.usage.seconds for e in arm.evaluations) > 0


def test_a_factory_that_fails_after_a_train_fn_is_missing_scores(project):
    def train_fn(cfg):
        return [RunResult(status="completed", steps=3)]

    result = project.experiment(train_fn=train_fn, inference_factory=lambda result, run: 1 / 0).run()
    assert result.arms[0].evaluations[-1].status == "missing"
    assert (result.status, result.exit_code) == ("completed", 1)


async def trained(cfg):
    return await arun_experiment(cfg)


@pytest.mark.parametrize(
    "train_fn", [run_experiment, arun_experiment, trained, lambda cfg: run_experiment(cfg)]
)
def test_a_train_fn_that_leaves_it_to_evsys_changes_nothing(project, train_fn):
    plain = project.experiment().run()
    expected = score(plain)
    forgotten(plain)
    result = project.experiment(train_fn=train_fn).run()
    assert score(result) == expected == (6, 0.0)
    assert result.conclusion.comparisons == plain.conclusion.comparisons
    assert len(list(project.root.glob(".evsys/experiments/*"))) == 1


def test_a_train_fn_may_train_what_evsys_trained_no_second_time(project):
    def train_fn(cfg):
        assert run_experiment(cfg) == run_experiment(cfg)
        return run_experiment(cfg)

    assert score(project.experiment(train_fn=train_fn).run()) == (6, 0.0)


def test_runs_that_a_train_fn_changed_are_an_experiment_of_their_own(project):
    def train_fn(cfg):
        return run_experiment(attrs.evolve(cfg, name="inner"))

    assert project.experiment(train_fn=train_fn).run().status == "completed"
    names = sorted(
        path.name.partition("-")[2].partition("-")[2] for path in project.root.glob(".evsys/experiments/*")
    )
    assert names == ["inner", "trial"]


def test_arms_of_a_train_fn_that_is_cut_off_end_with_it(project):
    started = asyncio.Event()

    class Waits(Parrot):
        async def generate(self, messages, sampling, *, n=1, tools=()):
            started.set()
            await asyncio.Event().wait()

    async def cancelled():
        experiment = project.experiment(
            train_fn=lambda cfg: run_experiment(cfg), inference_factory=lambda *_: Waits()
        )
        running = asyncio.create_task(experiment.arun())
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return experiment.result

    assert asyncio.run(cancelled()).status == "cancelled"


@pytest.mark.parametrize(
    ("returned", "message"),
    [([], "0 results for 1 arm"), (None, "NoneType for 1 arm"), ([3], "one RunResult each")],
)
def test_a_runner_that_forgets_an_arm_is_refused(project, returned, message):
    with pytest.raises(PluginContractError, match=message):
        project.experiment(train_fn=lambda cfg: returned).run()


def test_all_of_them_work_together(inside):
    store, made = Store(), []

    def factory(result, run):
        made.append((result.run_id, run.name))
        return Parrot("a")

    run = {**RUN, "data": {"dataset_id": "words-1", "transforms": [{"kind": "jsonl_to_chat"}]}}
    result = Experiment(
        {"name": "trial", "run": run},
        store=store,
        train_fn=lambda cfg: run_experiment(cfg),
        benchmark=Benchmark("mine", path="tasks.jsonl", metrics=["pass@1"]),
        inference_factory=factory,
        quiet=True,
    ).run()
    assert result.status == "completed"
    assert (store.asked, made) == (["words-1"], [("run-s0", "run")])
    assert result.arms[0].evaluations[-1].metrics["pass@1"].value == 1.0


# --- how it ended -----------------------------------------------------------------------------------------------


def test_an_experiment_is_completed_when_an_arm_is_and_names_what_failed(project):
    result = project.experiment(TWO).run()
    assert (result.status, result.exit_code, result.failed) == ("completed", 1, ("bad-s0",))
    assert (result.best_arm, result.best_score) == ("fine", result.conclusion.best_score)
    facts = json.loads((Path(result.directory) / "experiment.json").read_text(encoding="utf-8"))
    assert (facts["status"], facts["exit_code"], facts["failed"]) == ("completed", 1, ["bad-s0"])
    text = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert "Status completed except bad-s0;" in text


def test_an_experiment_with_a_failed_arm_resumes(project):
    result = project.experiment(TWO).run()
    again = Experiment.resume(result.directory, quiet=True)
    again.run()
    assert not again.nothing_to_do


def test_a_record_that_says_partial_is_read_and_resumed(project):
    result = project.experiment(TWO).run()
    path = Path(result.directory) / "experiment.json"
    facts = json.loads(path.read_text(encoding="utf-8")) | {"status": "partial"}
    del facts["failed"], facts["launch"]["injects"]
    path.write_text(json.dumps(facts), encoding="utf-8")
    with Index(project.root / ".evsys/experiments") as index:
        index.refresh()
        [past] = ask(index, Question(statuses=("partial",))).experiments
    assert (past.status, past.failed, past.runs_completed) == ("partial", (), 1)
    again = Experiment.resume(result.directory, quiet=True)
    assert (again.run().status, again.result.failed, again.nothing_to_do) == ("completed", ("bad-s0",), False)
