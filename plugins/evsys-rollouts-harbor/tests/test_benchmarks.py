"""Benchmark entries scored through the engine: the same as through `direct`, and honest when much goes wrong."""

import asyncio
import hashlib
from collections import Counter
from pathlib import Path

import pytest
from rollout_parts import Asking
from sandboxes import needs_sandbox
from task_files import native_task, write_tasks

from evsys import Registry
from evsys.types import HarborTask, NoScore, SampledSequence, SampleResult, VerifierSpec
from evsys_record.jsonl import read_jsonl
from evsys_rollouts_harbor.engine import HarborEngine
from evsys_runtime.config.model import AgentConfig, BenchmarkConfig, PluginSpec
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.evaluation.benchmarks import bind_benchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.experiment.experiment import Experiment
from evsys_runtime.rendering.resolve import load_renderer
from evsys_std.engine import DirectEngine

RENDERER = load_renderer("evsys/tiny")


class Dice:
    """A snapshot whose answers depend on prompt and seed alone; it notes how many prompts it sees together."""

    version = 3

    def __init__(self) -> None:
        self.open = 0
        self.together: list[int] = []

    async def sample(self, prompt, params, n=1):
        self.open += 1
        await asyncio.sleep(0)
        self.together.append(self.open)
        self.open -= 1
        digest = hashlib.sha256(f"{list(prompt)} {params.seed}".encode()).digest()
        tokens = RENDERER.tokenizer.encode(f"{digest[0] % 3}<|im_end|>")
        return SampleResult(
            sequences=[SampledSequence(tokens=tokens, logprobs=[-0.1] * len(tokens), finish_reason="stop")]
            * n
        )

    async def close(self):
        pass


def tasks(count: int) -> list[HarborTask]:
    spec = VerifierSpec(name="exact_match", expected="1")
    return [HarborTask(task_id=f"t{i}", instruction=f"Throw {i}.", verifier=spec) for i in range(count)]


class Record:
    """Keeps rollouts."""

    def __init__(self) -> None:
        self.rollouts = []

    def rollout(self, step, rollout, *, phase="training", **facts):
        self.rollouts.append(rollout)

    def metrics(self, step, values, *, phase="training"):
        pass


def scored(entry, a_tasks, registry=None, snapshot=None, record=None, **settings):
    registry = registry or Registry()
    benchmark = bind_benchmark(entry, a_tasks, registry=registry)
    evaluator = Evaluator(
        [benchmark], RENDERER, seeds=lambda purpose, index=0: 11, registry=registry, record=record, **settings
    )
    return asyncio.run(evaluator.score(benchmark, snapshot or Dice(), step=3))


@pytest.mark.parametrize("deterministic", [False, True])
def test_one_benchmark_through_both_engines_has_the_same_rewards(scratch, deterministic):
    results, snapshots = [], []
    for engine in ("direct", "harbor"):
        entry = BenchmarkConfig(
            name="dice", num_samples=3, engine=engine, n_concurrent=8, metrics=("mean_reward", "pass@2")
        )
        snapshots.append(Dice())
        results.append(scored(entry, tasks(15), snapshot=snapshots[-1], deterministic=deterministic))
    direct, harbor = results
    assert len({sum(rewards) for rewards in direct.task_rewards.values()}) > 1
    assert harbor.task_rewards == direct.task_rewards
    assert harbor.metrics == direct.metrics
    assert (harbor.status, harbor.benchmark_hash) == (direct.status, direct.benchmark_hash)
    assert (harbor.usage.prompt_tokens, harbor.usage.completion_tokens) == (direct.usage.prompt_tokens, direct.usage.completion_tokens)  # fmt: skip
    if deterministic:  # batches of a sampler decide about the last bits
        assert snapshots[0].together == snapshots[1].together


# --- much goes wrong ----------------------------------------------------------------------------------------------------------


def share(task_id: str, sample: int) -> float:
    """A number of [0, 100) for each rollout, evenly spread."""
    return (int(task_id[1:]) * 4 + sample) % 800 / 8


class Shaky(Asking):
    """Crashes in 5 %, hangs in 2 %: half of these before it has said a word."""

    def __init__(self, passing: bool) -> None:
        self.passing = passing
        self.met: Counter = Counter()

    async def run(self, task, model, tools, ctx):
        place = share(task.task_id, ctx.sample_index)
        self.met[place] += 1
        if place < 5 and not (self.passing and self.met[place] > 1):
            raise (ConnectionError if self.passing else RuntimeError)("the agent stumbled")
        if 10 <= place < 11:
            await asyncio.Event().wait()
        said = await super().run(task, model, tools, ctx)
        if 11 <= place < 12:
            await asyncio.Event().wait()
        return said


def shaky_registry(passing: bool) -> Registry:
    registry, met = Registry(), Counter()
    agent = Shaky(passing)

    def judge(model_output, expected, params, rollout):
        place = share(rollout.task_id, rollout.sample_index)
        met[place] += 1
        if 5 <= place < 10 and not (passing and met[place] > 1):
            raise (ConnectionError if passing else ZeroDivisionError)("the verifier stumbled")
        return 1.0

    async def act(task, model, tools, ctx):
        return await agent.run(task, model, tools, ctx)

    registry.register("verifier", "shaky", judge)
    registry.register("agent", "shaky", act)
    return registry


def shaky(engine, *, passing: bool):
    spec = VerifierSpec(name="shaky")
    a_tasks = [HarborTask(task_id=f"t{i}", instruction=f"Throw {i}.", verifier=spec) for i in range(200)]
    entry = BenchmarkConfig(name="shaky", num_samples=4, engine=engine, agent=AgentConfig(kind="shaky"))
    record = Record()
    result = scored(entry, a_tasks, shaky_registry(passing), record=record, timeout_seconds=1.0)
    assert result.scored + result.no_score == 800
    return result, record.rollouts


@pytest.mark.parametrize("engine", ["direct", PluginSpec(kind="harbor", params={"max_retries": 0})])
def test_crashes_and_hangs_are_counted_and_make_it_invalid(scratch, engine):
    result, rollouts = shaky(engine, passing=False)
    assert (result.scored, result.no_score, result.status) == (712, 88, "invalid")
    late = [rollout for rollout in rollouts if rollout.timed_out]
    assert sorted(isinstance(rollout.score, NoScore) for rollout in late) == [False] * 8 + [True] * 8
    why = Counter(rollout.score.boundary for rollout in rollouts if isinstance(rollout.score, NoScore))
    assert why == {"rollout": 48, "verifier": 40}


@pytest.mark.parametrize("kind", ["direct", "harbor"])
def test_retries_that_recover_keep_it_valid(scratch, kind):
    engine = PluginSpec(kind=kind, params={"max_retries": 2, "retry_wait_seconds": 0})
    result, rollouts = shaky(engine, passing=True)
    assert (result.scored, result.no_score, result.status) == (792, 8, "completed")
    assert Counter(rollout.metadata.get("attempts") for rollout in rollouts) == {None: 720, 2: 80}


# --- which engine -------------------------------------------------------------------------------------------------------------


def test_auto_takes_the_engine_that_what_is_asked_for_needs(tmp_path, monkeypatch):
    (tmp_path / "auto_agents.py").write_text(
        "from harbor import BaseAgent\n\n\nclass Harness(BaseAgent):\n    pass\n\n\n"
        "async def plain(task, model, tools, ctx):\n    return ''\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()

    def engine(**fields):
        return type(bind_benchmark(BenchmarkConfig(name="x", **fields), tasks(2), registry=registry).engine)

    assert engine() is DirectEngine
    assert engine(agent=AgentConfig(import_path="auto_agents:plain")) is DirectEngine
    assert engine(agent=AgentConfig(import_path="auto_agents:Harness")) is HarborEngine
    assert engine(environment=PluginSpec(kind="null")) is HarborEngine


CONFIG = """\
version: 1
name: sandboxed
metadata:
  hypothesis: Folders of tasks are a benchmark as they stand.
  benchmark:
    - {name: suite, path: data/suite, agent: {import_path: src.agents.write}}
    - {name: words, path: data/words.jsonl, engine: harbor, run_every: 2}
  success_metric: words.mean_reward
run:
  data: {path: data/train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 2, batch_size: 4}}
  backend: {kind: mock}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0"\n', encoding="utf-8")
    (root / "src" / "__init__.py").write_text("", encoding="utf-8")
    (root / "src" / "agents.py").write_text(
        "async def write(task, model, tools, ctx):\n"
        "    done = await ctx.environment.exec('echo hello > out.txt && cat out.txt')\n    return done.stdout\n",
        encoding="utf-8",
    )
    for name in ("a", "b", "c"):
        native_task(
            root / "data" / "suite" / name,
            test="grep -q hello /app/out.txt && echo 1 > /logs/verifier/reward.txt\n",
        )
    verifier = {"name": "contains", "expected": "a"}
    rows = [{"task_id": f"w{i}", "instruction": f"say {i}", "verifier": verifier} for i in range(12)]
    write_tasks(root / "data" / "words.jsonl", rows)
    turns = [{"role": "user", "content": "say"}, {"role": "assistant", "content": "a"}]
    write_tasks(root / "data" / "train.jsonl", [{"messages": turns}] * 8)
    (root / "config.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(root)
    return root


@needs_sandbox
def test_an_experiment_scores_folders_of_tasks_and_chat_tasks(scratch, project):
    plan = load_experiment(project / "config.yaml")
    assert [entry.label for entry in plan.experiment.metadata.benchmarks] == ["suite", "words"]
    result = Experiment.from_yaml(project / "config.yaml").run()
    [arm] = result.arms
    assert arm.status == "completed"
    statuses = {(e.benchmark, e.step): (e.status, e.scored, e.no_score) for e in arm.evaluations}
    assert statuses[("suite", 2)] == ("completed", 3, 0)
    assert statuses[("words", 2)] == ("completed", 12, 0)
    suite = next(e for e in arm.evaluations if (e.benchmark, e.step) == ("suite", 2))
    assert suite.metrics["mean_reward"].value == 1.0
    run = next(Path(result.directory).glob("runs/*"))
    lines = read_jsonl(run / "validation" / "rollouts.jsonl")
    kept = [line["rollout"]["metadata"]["files"] for line in lines]
    assert len(kept) == 2 * (3 + 12)  # before and after the training
    assert all((run / "validation" / "files" / folder / "result.json").is_file() for folder in kept)
