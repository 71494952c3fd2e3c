"""A whole experiment on the mock backend: what it leaves behind and how it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from small_project import METADATA, RUN, Project

from evsys.errors import ConfigError
from evsys.types import RunResult
from evsys_runtime.experiment import Experiment, arun_experiment, run_experiment
from evsys_runtime.experiment.result_schemas import validate_result


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_run_is_trained_scored_before_and_after_and_concluded(project):
    result = project.experiment().run()
    assert (result.status, result.exit_code) == ("completed", 0)
    assert [e.step for e in result.arms[0].evaluations] == [0, 6]
    assert result.conclusion.metric == "val.mean_reward"
    assert result.conclusion.comparisons[0].n_tasks == 12
    assert result.arms[0].run.steps == 6


def test_the_record_has_the_tree_that_the_specification_promises(project):
    from pathlib import Path

    result = project.experiment().run()
    record = Path(result.directory)
    assert record.parent == project.root / ".evsys/experiments"
    assert (record / "config.yaml").read_bytes() == (project.root / "config.yaml").read_bytes()
    for name in ("resolved.json", "experiment.json", "hypothesis.md", "conclusion.md", "conclusion.json"):
        assert (record / name).is_file(), name
    run = record / "runs/run-s0"
    for name in (
        "run.json",
        "run_result.json",
        "checkpoints.jsonl",
        "journal.jsonl",
        "run.log.jsonl",
        "hypothesis.md",
        "conclusion.md",
        "data/training_data.jsonl",
        "training/metrics.jsonl",
        "validation/metrics.jsonl",
        "validation/rollouts.jsonl",
    ):
        assert (run / name).is_file(), name
    assert [line["step"] for line in lines(run / "training/metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert len(lines(run / "validation/rollouts.jsonl")) == 24
    assert len(lines(run / "data/training_data.jsonl")) == 8


def test_every_result_file_fits_its_published_schema(project):
    from pathlib import Path

    record = Path(project.experiment().run().directory)
    validate_result(json.loads((record / "conclusion.json").read_text(encoding="utf-8")), "conclusion")
    validate_result(
        json.loads((record / "runs/run-s0/run_result.json").read_text(encoding="utf-8")), "run_result"
    )


def test_the_record_says_which_code_data_and_seeds_made_it(project):
    from pathlib import Path

    record = Path(project.experiment().run().directory)
    facts = json.loads((record / "experiment.json").read_text(encoding="utf-8"))
    assert facts["status"] == "completed"
    assert facts["provenance"]["evsys"]["evsys-core"]
    assert facts["benchmarks"]["val"]["hash"].startswith("sha256:")
    assert facts["benchmarks"]["val"]["verifier_hash"].startswith("sha256:")
    run = json.loads((record / "runs/run-s0/run.json").read_text(encoding="utf-8"))
    assert run["identity"].startswith("sha256:")
    assert run["data"]["fingerprint"]
    assert run["plugins"]["algorithm:evsys-algo-sft/sft"]
    assert [attempt["n"] for attempt in run["attempts"]] == [1]


def test_the_same_experiment_twice_gives_the_same_bits(project):
    from pathlib import Path

    one, two = (Path(project.experiment(no_cache=True).run().directory) for _ in range(2))
    for name in ("training/metrics.jsonl", "validation/rollouts.jsonl"):
        first, second = (lines(record / "runs/run-s0" / name) for record in (one, two))
        for line in (*first, *second):
            line.pop("time", None)
            if "rollout" in line:
                line["rollout"]["usage"].pop("seconds")
        assert first == second
    identities = [
        json.loads((r / "runs/run-s0/run.json").read_text(encoding="utf-8"))["identity"] for r in (one, two)
    ]
    assert identities[0] == identities[1]


def test_an_identity_ignores_names_but_not_recipes(project, run_text):
    runs = [
        run_text(name="one"),
        run_text(name="two"),
        run_text(("learning_rate: 0.05", "learning_rate: 0.01"), name="three"),
    ]

    def identity(text):
        return project.experiment(f"run:{text}").run().arms[0].identity

    one, two, three = map(identity, runs)
    assert one == two != three


def test_repeats_share_tasks_but_not_the_order_of_data(project):
    from pathlib import Path

    result = project.experiment(extra="n_repeats: 2\n").run()
    assert [arm.run_id for arm in result.arms] == ["run-s0", "run-s1"]
    orders = [
        [line["row_ids"] for line in lines(Path(arm.run_dir) / "journal.jsonl") if line["event"] == "intent"]
        for arm in result.arms
    ]
    assert orders[0] != orders[1]
    assert result.conclusion.comparisons[0].n_seeds == 2


def test_starting_weights_are_scored_once_and_shared_by_arms(project, run_text):
    from pathlib import Path

    text = "runs:\n" + "".join(
        f"  - name: {name}\n"
        + run_text(("steps: 6", f"steps: {steps}")).replace("\n  ", "\n    ").lstrip("\n").rstrip(" ")
        for name, steps in (("a", 6), ("b", 4))
    )
    result = project.experiment(text).run()
    assert result.status == "completed"
    untrained = [next(e for e in arm.evaluations if e.step == 0) for arm in result.arms]
    assert untrained[0].task_rewards == untrained[1].task_rewards
    steps = [line["step"] for line in lines(Path(result.arms[1].run_dir) / "validation/rollouts.jsonl")]
    assert set(steps) == {4}


def test_a_dry_run_takes_a_few_steps_and_tasks_and_concludes_nothing(project):
    result = project.experiment(dry=True).run()
    assert (result.dry, result.arms[0].run.steps, result.conclusion.verdict) == (True, 2, None)
    assert result.arms[0].evaluations[0].tasks == 4


def test_a_failing_arm_is_a_result_and_the_others_go_on(project, run_text):
    project.code(
        "algorithms",
        """
from evsys_sdk import SFT, register_algorithm

@register_algorithm("breaks")
class Breaks(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 2:
            raise RuntimeError("the third batch")
        return await super().build_batch(step_idx)
""",
    )
    text = "matrix:\n  axes:\n    algorithm.kind: [breaks, sft]\nbase_run:" + run_text()
    result = project.experiment(text).run()
    assert (result.status, result.exit_code) == ("completed", 1)
    broken, whole = result.arms
    assert (broken.status, whole.status) == ("failed", "completed")
    assert (broken.failure.boundary, broken.failure.plugin) == ("algorithm", "breaks")
    assert "the third batch" in broken.failure.message
    assert "algorithms.py" in broken.failure.place
    assert [e.step for e in broken.evaluations] == [0]
    assert result.conclusion.comparisons[0].outcome == "unscored"


def test_fail_fast_skips_what_is_left(project, run_text):
    text = "matrix:\n  axes:\n    algorithm.params.max_length: [2, 64]\nbase_run:" + run_text()
    result = project.experiment(text, extra="max_concurrent_arms: 1\n", fail_fast=True).run()
    assert [arm.status for arm in result.arms] == ["failed", "skipped"]


def test_an_experiment_whose_rows_are_all_unusable_ends_with_the_code_of_bad_data(project, run_text):
    result = project.experiment("run:" + run_text(("batch_size: 4", "batch_size: 4, max_length: 2"))).run()
    assert (result.status, result.exit_code) == ("failed", 4)


def test_an_evaluation_without_scores_keeps_the_training_and_makes_the_experiment_invalid(project):
    project.code(
        "verifiers",
        """
from evsys_sdk import register_verifier

@register_verifier("down")
def down(model_output, expected, params):
    raise OSError("the judge is down")
""",
    )
    project.tasks([(f"t{i}", "say a", "a") for i in range(12)], verifier="down")
    result = project.experiment().run()
    assert (result.arms[0].status, result.arms[0].run.steps) == ("completed", 6)
    assert {e.status for e in result.arms[0].evaluations} == {"invalid"}
    assert (result.status, result.exit_code) == ("invalid", 1)
    assert result.conclusion.verdict == "INVALID"
    assert result.conclusion.comparisons[0].outcome == "unscored"


def test_teardown_that_fails_keeps_what_was_trained(project, monkeypatch):
    from evsys_backend_mock import MockBackend

    async def teardown(self, client):
        raise RuntimeError("will not go")

    monkeypatch.setattr(MockBackend, "teardown", teardown)
    result = project.experiment().run()
    assert (result.arms[0].status, result.arms[0].failure.boundary) == ("failed", "backend")
    assert (result.arms[0].run.steps, len(result.arms[0].evaluations)) == (6, 2)


def test_the_inner_runner_is_public(project):
    results = run_experiment(project.config())
    assert [(r.status, r.steps, r.run_id) for r in results] == [("completed", 6, "run-s0")]


def test_sync_entry_points_name_the_awaitable_inside_a_running_loop(project):
    experiment = project.experiment()

    async def inside():
        with pytest.raises(RuntimeError, match=r"await experiment\.arun\(\)"):
            experiment.run()
        with pytest.raises(RuntimeError, match="await arun_experiment"):
            run_experiment(experiment.plan)
        return await arun_experiment(experiment.plan)

    assert asyncio.run(inside())[0].status == "completed"


def test_an_interrupted_experiment_is_cancelled_and_keeps_its_scores(project):
    import json as json_
    from pathlib import Path

    project.code(
        "callbacks",
        """
import asyncio
from evsys_sdk import register_callback

@register_callback("interrupts")
class Interrupts:
    async def evsys_step_finished(self, ctx, step, metrics):
        if step == 3:
            for task in asyncio.all_tasks():
                task.cancel()
            await asyncio.Event().wait()
""",
    )
    experiment = project.experiment(extra="callbacks: [{kind: interrupts}]\n")
    with pytest.raises(asyncio.CancelledError):
        experiment.run()
    (record,) = (Path(project.root) / ".evsys/experiments").glob("*-trial")
    assert json_.loads((record / "experiment.json").read_text(encoding="utf-8"))["status"] == "cancelled"
    run = json_.loads((record / "runs/run-s0/run_result.json").read_text(encoding="utf-8"))
    assert (run["status"], [e["step"] for e in run["evaluations"]]) == ("cancelled", [0])


def test_a_listener_may_stop_a_run_early_and_write_the_prose(project):
    from pathlib import Path

    project.code(
        "callbacks",
        """
from evsys_sdk import register_callback

@register_callback("stops")
class Stops:
    def evsys_step_finished(self, ctx, step, metrics):
        if step == 3:
            ctx.request_stop("enough")

    def evsys_write_conclusion(self, result, conclusion):
        return "In my own words."
""",
    )
    result = project.experiment(extra="callbacks: [{kind: stops}]\n").run()
    assert (result.arms[0].run.steps, result.arms[0].run.stop_reason) == (3, "enough")
    text = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert "In my own words." in text
    assert "Runs that ended early:\n\n- run-s0 ended at step 3: enough\n" in text
    own = (Path(result.directory) / "runs/run-s0/conclusion.md").read_text(encoding="utf-8")
    assert "\nEnded early: enough\n" in own


def test_a_wrong_file_spends_nothing(project):
    path = project.config(extra="budgett: 3\n")
    with pytest.raises(ConfigError, match="budget"):
        Experiment.from_yaml(path)
    assert not (project.root / ".evsys").exists()


def test_a_benchmark_may_make_its_tasks_of_other_rows(project):
    (project.root / "held_out.csv").write_text(
        "text,label\n" + "".join(f"say {c},{c}\n" for c in "abcdefghijkl"), encoding="utf-8"
    )
    metadata = """
metadata:
  allow_leak: true
  benchmark:
    name: val
    path: held_out.csv
    max_tokens: 4
    transforms:
      - kind: filter
        params: {conditions: [{column: label, op: "!=", value: l}]}
      - kind: jsonl_to_tasks
        params: {instruction_column: text, expected_column: label}
"""
    result = project.experiment(metadata=metadata).run()
    assert result.status == "completed"
    assert result.arms[0].evaluations[0].tasks == 11


def test_a_wrong_transform_of_a_benchmark_is_a_problem_of_the_file(project):
    metadata = """
metadata:
  benchmark: {name: val, path: tasks.jsonl, transforms: [{kind: renam}]}
"""
    with pytest.raises(ConfigError, match=r"transforms\[0\].*rename"):
        project.experiment(metadata=metadata)


def test_each_run_has_its_own_instance_of_a_callback(project):
    project.code(
        "callbacks",
        """
from evsys_sdk import register_callback

@register_callback("counts")
class Counts:
    def __init__(self, **kw):
        self.steps = 0

    def evsys_step_finished(self, ctx, step, metrics):
        self.steps += 1
        if self.steps > 6:
            raise RuntimeError("heard more than one run")
""",
    )
    result = project.experiment(extra="n_repeats: 2\ncallbacks: [{kind: counts}]\n").run()
    assert result.status == "completed"
    assert not any("heard more than one run" in warning for warning in result.warnings)


def test_a_listener_that_fails_is_counted_and_ends_nothing(project):
    project.code(
        "callbacks",
        """
from evsys_sdk import register_callback

@register_callback("grumbles")
class Grumbles:
    def evsys_step_finished(self, ctx, step, metrics):
        raise RuntimeError("not today")
""",
    )
    result = project.experiment(extra="callbacks: [{kind: grumbles}]\n").run()
    assert result.status == "completed"
    assert any("not today (6 times)" in warning for warning in result.warnings)


def test_looks_at_a_test_set_are_counted(project):
    metadata = """
metadata:
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 4}
    - {name: final, path: tasks.jsonl, split: test, max_tokens: 4}
"""
    result = project.experiment(metadata=metadata, extra="n_repeats: 2\n").run()
    assert result.conclusion.test_looks == {"final": 3}


NAMED = ("path: train.jsonl", "dataset_id: greetings")


def test_a_dataset_comes_from_the_store_once_and_then_from_the_cache(project, run_text):
    pulled = []

    class Store:
        async def pull(self, ref):
            pulled.append(ref)
            return [{"prompt": f"say {c}", "completion": c} for c in "abcd"]

    text = "run:" + run_text(NAMED)
    for _ in range(2):
        result = project.experiment(text, store=Store()).run()
        assert result.status == "completed"
    assert pulled == ["greetings"]


def test_a_path_is_read_when_the_store_has_nothing_and_the_result_says_so(project, run_text):
    class Down:
        def pull(self, ref):
            raise ConnectionError("no route")

    text = "run:" + run_text(("path: train.jsonl", "path: train.jsonl\n    dataset_id: greetings"))
    result = project.experiment(text, store=Down()).run()
    assert result.status == "completed"
    assert any("greetings" in warning and "no route" in warning for warning in result.warnings)


def test_learning_rate_zero_is_never_supported_even_with_sampled_answers(project, run_text):
    text = "run:" + run_text(("learning_rate: 0.05", "learning_rate: 0"))
    metadata = METADATA.replace("max_tokens: 4", "max_tokens: 1\n    temperature: 1.0")
    project.tasks([(f"t{i:02d}", "say a", "\n") for i in range(40)])
    for seed in range(8):
        result = project.experiment(text, metadata=metadata, extra=f"n_repeats: 2\nbase_seed: {seed}\n").run()
        assert result.conclusion.comparisons[0].effect == 0.0
        assert result.conclusion.verdict != "SUPPORTED"


def test_an_arm_that_crashes_after_a_good_score_is_not_supported(project):
    project.code(
        "algorithms",
        """
from evsys_sdk import SFT, register_algorithm

@register_algorithm("breaks")
class Breaks(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 5:
            raise RuntimeError("late")
        return await super().build_batch(step_idx)
""",
    )
    metadata = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 2")
    result = project.experiment(metadata=metadata, overrides=["run.algorithm.kind=breaks"]).run()
    assert [e.step for e in result.arms[0].evaluations] == [0, 2, 4]
    assert result.conclusion.comparisons[0].outcome == "unscored"


def test_the_runs_agent_plays_the_entries_without_one(project):
    project.code("agents", "async def right(task, model, tools, ctx):\n    return 'a'\n")
    result = project.experiment("run:" + RUN + "  agent: {import_path: 'src.agents:right'}\n").run()
    assert result.arms[0].evaluations[0].metrics["mean_reward"].value == 1.0


def test_a_projects_own_loss_and_renderer_are_found_while_it_runs(project):
    project.code(
        "plugins",
        """
from evsys.types import LossResult
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_sdk import SFT, register_algorithm, register_loss, register_renderer

@register_loss("mine")
def mine(data, logprobs):
    return LossResult(
        loss=-sum(float((d.loss_inputs["weights"] * lp).sum()) for d, lp in zip(data, logprobs)),
        grads=[-d.loss_inputs["weights"] for d in data],
    )

@register_renderer("mine")
class Mine(ChatTemplateRenderer):
    pass

@register_algorithm("named_loss")
class NamedLoss(SFT):
    async def build_batch(self, step_idx):
        batch = await super().build_batch(step_idx)
        batch.loss_fn = "mine"
        return batch
""",
    )
    overrides = ["run.algorithm.kind=named_loss", "run.model.renderer=mine"]
    for backend in ("mock", "local"):
        result = project.experiment(overrides=[*overrides, f"run.backend.kind={backend}"]).run()
        assert result.status == "completed", result.arms[0].failure


def test_an_experiment_uses_its_own_project_after_another_was_read(tmp_path):
    projects = []
    for name, said in (("one", "a"), ("two", "b")):
        (tmp_path / name).mkdir()
        project = Project(tmp_path / name)
        project.code("agents", f"async def mine(task, model, tools, ctx):\n    return {said!r}\n")
        projects.append(project.experiment("run:" + RUN + "  agent: {import_path: 'src.agents:mine'}\n"))
    scores = [p.run().arms[0].evaluations[0].metrics["mean_reward"].value for p in projects]
    assert scores == [1.0, 0.0]


def test_shared_scores_are_paid_for_once(project):
    result = project.experiment(extra="n_repeats: 3\n").run()
    untrained = [next(e for e in arm.evaluations if e.step == 0).usage.prompt_tokens for arm in result.arms]
    assert untrained[0] > 0
    assert untrained[1:] == [0, 0]


def test_an_identity_changes_with_the_projects_own_code(project):
    def identity(factor):
        project.code(
            "algorithms",
            f"""
from evsys_sdk import SFT, register_algorithm

@register_algorithm("own")
class Own(SFT):
    FACTOR = {factor}
""",
        )
        import sys

        for module in [m for m in sys.modules if m == "src" or m.startswith("src.")]:
            del sys.modules[module]
        return project.experiment(overrides=["run.algorithm.kind=own"]).run().arms[0].identity

    assert identity(1) != identity(2)


def test_what_a_listener_does_wrong_at_the_end_is_told_too(project):
    project.code(
        "callbacks",
        """
from evsys_sdk import register_callback

@register_callback("late")
class Late:
    def evsys_run_finished(self, ctx, result):
        raise RuntimeError("after the run")

    def evsys_experiment_finished(self, result):
        raise RuntimeError("after everything")
""",
    )
    result = project.experiment(extra="callbacks: [{kind: late}]\n").run()
    assert any("after the run" in line for line in result.arms[0].warnings)
    assert any("after everything" in line for line in result.warnings)


def test_a_metric_that_is_no_number_fails_its_arm_and_not_the_experiment(project):
    project.code(
        "algorithms",
        """
import attrs
from evsys_sdk import SFT, register_algorithm

@register_algorithm("odd")
class Odd(SFT):
    async def train(self, ctx):
        return attrs.evolve(await super().train(ctx), metrics={"a": object()})
""",
    )
    result = project.experiment(overrides=["run.algorithm.kind=odd"]).run()
    assert result.arms[0].status == "failed"
    assert "'a' is a object, not a number" in result.arms[0].failure.message


def test_an_injected_run_is_kept_like_any_other(project, monkeypatch):
    monkeypatch.setenv("JUDGE_TOKEN", "canary-Value-0123456789")

    def train_fn(cfg):
        return [RunResult(status="completed", steps=1, warnings=("sent canary-Value-0123456789",))]

    result = project.experiment(train_fn=train_fn).run()
    run_dir = Path(result.arms[0].run_dir)
    assert (run_dir / "conclusion.md").is_file()
    assert "canary" not in (run_dir / "run_result.json").read_text(encoding="utf-8")
