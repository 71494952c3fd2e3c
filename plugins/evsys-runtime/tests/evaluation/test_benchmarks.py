import json
from pathlib import Path
from typing import ClassVar

import attrs
import pytest

from evsys.errors import ConfigError, DataError
from evsys.types import HarborTask, Message, VerifierSpec
from evsys_runtime.config.model import AgentConfig, BenchmarkConfig, PluginSpec
from evsys_runtime.evaluation.benchmarks import bind_benchmark, load_benchmark
from evsys_runtime.evaluation.metrics import Scores, score

ENTRY = BenchmarkConfig(name="b", path="tasks.jsonl", metrics=("mean_reward",))


def with_(**fields) -> BenchmarkConfig:
    return attrs.evolve(ENTRY, **fields)


def problems(caught: pytest.ExceptionInfo[ConfigError]) -> dict[str, str]:
    return {problem.path: problem.message for problem in caught.value.problems}


def write_tasks(path: Path, count: int = 3) -> Path:
    rows = [
        {
            "task_id": f"t{i}",
            "instruction": "well?",
            "verifier": {"name": "equals", "expected": "yes"},
            "topic": "ab"[i % 2],
        }
        for i in range(count)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_an_entry_is_read_from_its_path_under_the_project_root(registry, tmp_path):
    write_tasks(tmp_path / "data" / "tasks.jsonl")
    entry = BenchmarkConfig(
        name="b",
        path="data/tasks.jsonl",
        num_samples=3,
        run_every=5,
        max_tokens=17,
        split="test",
        breakdown_keys=("topic",),
    )
    bound = load_benchmark(entry, registry=registry, project_root=tmp_path)
    assert [task.task_id for task in bound.tasks] == ["t0", "t1", "t2"]
    assert (bound.name, bound.split, bound.phase, bound.run_every, bound.num_samples) == (
        "b",
        "test",
        "test",
        5,
        3,
    )
    assert (bound.sampling.max_tokens, bound.sampling.temperature) == (17, 1.0)
    assert bound.labels == {"topic": {"t0": "a", "t1": "b", "t2": "a"}}
    assert bound.clusters == dict.fromkeys(("t0", "t1", "t2"), "equal to t0")  # all of them ask the same
    assert bound.metric("mean_reward").direction == "max"


def test_one_sample_is_greedy_unless_told_otherwise(registry, task):
    assert bind_benchmark(ENTRY, [task()], registry=registry).sampling.temperature == 0.0
    assert (
        bind_benchmark(
            BenchmarkConfig(name="b", temperature=0.7), [task()], registry=registry
        ).sampling.temperature
        == 0.7
    )


def test_an_entry_without_metrics_has_the_mean_reward(registry, task):
    bound = bind_benchmark(with_(metrics=()), [task()], registry=registry)
    assert [metric.name for metric in bound.metrics] == ["mean_reward"]


def test_a_metric_that_is_listed_again_with_other_params_has_a_name_of_its_own_in_results(registry, task):
    twice = tuple(PluginSpec(kind="pass@k", params={"k": k}) for k in (1, 2))
    bound = bind_benchmark(with_(metrics=twice, num_samples=2), [task()], registry=registry)
    values, failures = score(bound.metrics, Scores(rewards={"t": (1.0, 0.0), "u": (0.0,)}, rollouts={}))
    assert not failures
    assert {name: value.value for name, value in values.items()} == {"pass@k[k=1]": 0.5, "pass@k[k=2]": 1.0}
    assert bound.metric("pass@k[k=2]").needs_samples == 2


def test_a_stored_benchmark_is_pulled_by_id_or_else_by_name(registry, tmp_path):
    asked = []
    path = write_tasks(tmp_path / "pulled.jsonl")

    def pull(name: str) -> Path:
        asked.append(name)
        return path

    for entry in (BenchmarkConfig(name="label", id="stored-1"), BenchmarkConfig(name="stored")):
        load_benchmark(entry, registry=registry, project_root=tmp_path, pull=pull)
    assert asked == ["stored-1", "stored"]


def test_the_path_next_to_an_id_is_read_only_if_nothing_has_the_id(registry, tmp_path):
    write_tasks(tmp_path / "own.jsonl")
    entry = BenchmarkConfig(id="stored-1", path="own.jsonl")
    offline = load_benchmark(entry, registry=registry, project_root=tmp_path)
    assert offline.name == "stored-1"
    with pytest.raises(DataError, match="no such file"):  # what has the id is read
        load_benchmark(
            entry, registry=registry, project_root=tmp_path, pull=lambda _name: tmp_path / "gone.jsonl"
        )

    def ambiguous(name: str) -> Path:
        raise DataError(f"two benchmarks are called {name!r}")

    with pytest.raises(DataError, match="two benchmarks"):
        load_benchmark(entry, registry=registry, project_root=tmp_path, pull=ambiguous)


def test_a_project_benchmark_is_found_by_name(registry, tmp_path):
    write_tasks(tmp_path / "data" / "benchmark" / "goal" / "tasks.jsonl")
    bound = load_benchmark(BenchmarkConfig(name="goal"), registry=registry, project_root=tmp_path)
    assert (bound.name, len(bound.tasks)) == ("goal", 3)


def test_an_entry_that_says_nothing_and_a_missing_file_are_named(registry, tmp_path):
    with pytest.raises(ConfigError, match="neither `path` nor `id` nor `name`"):
        load_benchmark(BenchmarkConfig(), registry=registry, project_root=tmp_path)
    with pytest.raises(DataError, match=r"absent\.jsonl"):
        load_benchmark(with_(path="absent.jsonl"), registry=registry, project_root=tmp_path)


def test_the_hash_follows_the_tasks_that_are_scored(registry, tmp_path):
    def hash_of(count: int, **fields) -> str:
        write_tasks(tmp_path / "tasks.jsonl", count)
        return load_benchmark(with_(**fields), registry=registry, project_root=tmp_path).benchmark_hash

    whole = hash_of(3)
    assert hash_of(3) == hash_of(3, limit=3) == hash_of(3, num_samples=2) == whole
    assert len({whole, hash_of(4), hash_of(3, limit=2)}) == 3


def test_the_verifier_hash_follows_the_source_of_the_verifiers(registry, task):
    def other(model_output, expected, params):
        return float(model_output != expected)

    registry.register("verifier", "other", other)
    hashes = {
        bind_benchmark(ENTRY, tasks, registry=registry).verifier_hash
        for tasks in ([task()], [task(verifier="other")], [task("a"), task("b", verifier="other")])
    }
    assert len(hashes) == 3
    one, two = (bind_benchmark(ENTRY, [task(), task("x", expected=e)], registry=registry) for e in (1, 2))
    assert one.verifier_hash == two.verifier_hash
    assert one.benchmark_hash != two.benchmark_hash


def test_the_verifier_hash_covers_the_verifiers_that_a_verifier_calls(registry, task):
    def part(model_output, expected, params):
        return float(model_output == expected)

    class Whole:
        uses: ClassVar = ("equals",)

        def __call__(self, model_output, expected, params):
            return 1.0

    registry.register("verifier", "part", part)
    registry.register("verifier", "whole", Whole)
    before = bind_benchmark(ENTRY, [task(verifier="whole")], registry=registry).verifier_hash
    Whole.uses = ("equals", "part")
    assert bind_benchmark(ENTRY, [task(verifier="whole")], registry=registry).verifier_hash != before


def test_the_range_of_rewards_is_that_of_all_verifiers_and_unknown_where_one_declares_none(registry, task):
    def ranged(name, declared):
        def verifier(model_output, expected, params):
            return 0.0

        verifier.reward_range = declared
        registry.register("verifier", name, verifier)
        return task(name, verifier=name)

    one, two, odd = ranged("one", (0.0, 1.0)), ranged("two", (-1.0, 0.5)), ranged("odd", (1.0, 0.0))
    assert bind_benchmark(ENTRY, [one, two], registry=registry).reward_range == (-1.0, 1.0)
    assert bind_benchmark(ENTRY, [one, task()], registry=registry).reward_range is None
    with pytest.raises(ConfigError, match=r"'odd' declares reward_range = \(1.0, 0.0\)"):
        bind_benchmark(ENTRY, [odd], registry=registry)


def test_everything_that_is_wrong_is_told_at_once(registry, task):
    entry = BenchmarkConfig(
        name="b",
        metrics=("mean_reward", "pass@5", "absent", PluginSpec(kind="pass@2", params={"treshold": 1})),
        num_samples=2,
        engine="warp",
        agent=AgentConfig(import_path="nowhere:Agent"),
        inference=PluginSpec(kind="oracle"),
        breakdown_keys=("topik",),
        cluster_key="grp",
    )
    tasks = [
        task("a", metadata={"topic": "x"}),
        task("b", verifier="absent"),
        HarborTask(task_id="c", instruction="?"),
    ]
    with pytest.raises(ConfigError) as caught:
        bind_benchmark(entry, tasks, registry=registry, path="$.metadata.benchmark[0]")
    at = "$.metadata.benchmark[0]"
    found = problems(caught)
    assert "nowhere" in found[f"{at}.agent"]
    assert "pass@5 needs 5" in found[f"{at}.metrics[1]"]
    assert "absent" in found[f"{at}.metrics[2]"]
    assert any(path.startswith(f"{at}.metrics[3].params") for path in found)
    assert "warp" in found[f"{at}.engine"]
    assert "oracle" in found[f"{at}.inference"]
    assert "'topik'" in found[f"{at}.breakdown_keys[0]"]
    assert "'grp'" in found[f"{at}.cluster_key"]
    told = [problem.message for problem in caught.value.problems if problem.path == at]
    assert any("task 'b'" in message and "absent" in message for message in told)
    assert "task 'c': it has no verifier" in told


def test_an_expectation_that_its_verifier_cannot_judge_by_is_found_before_any_rollout(registry, task):
    class Picky:
        def __call__(self, model_output, expected, params):
            return 1.0

        def check(self, expected):
            if expected == "bad":
                raise ValueError("'bad' is not a pattern")

    registry.register("verifier", "picky", Picky)
    tasks = [task(str(i), verifier="picky", expected="bad" if i % 2 else "good") for i in range(60)]
    with pytest.raises(ConfigError) as caught:
        bind_benchmark(ENTRY, tasks, registry=registry)
    messages = [problem.message for problem in caught.value.problems]
    assert messages[0] == "task '1': verifier 'picky': 'bad' is not a pattern"
    assert messages[-1] == "and 10 more problems of tasks"
    bind_benchmark(ENTRY, tasks[::2], registry=registry)


def test_two_system_messages_are_refused(registry, task):
    own = task(instruction=(Message(role="system", content="a"), Message(role="user", content="b")))
    with pytest.raises(ConfigError, match="has a system message, and the entry sets `system_prompt` too"):
        bind_benchmark(with_(system_prompt="c"), [own], registry=registry)
    assert bind_benchmark(ENTRY, [own], registry=registry)


def test_the_runs_agent_acts_where_the_entry_has_none(registry, task):
    class Mine:
        async def run(self, task, model, tools, ctx):
            return "x"

    registry.register("agent", "mine", Mine)
    bound = bind_benchmark(ENTRY, [task()], registry=registry, agent=AgentConfig(kind="mine"))
    assert isinstance(bound.agent, Mine)
    own = with_(agent=AgentConfig(kind="chat"))
    assert not isinstance(
        bind_benchmark(own, [task()], registry=registry, agent=AgentConfig(kind="mine")).agent, Mine
    )


@pytest.mark.parametrize("fields", [{"path": "/tasks/one"}, {}])
def test_auto_takes_harbor_for_what_needs_a_place_to_act(registry, task, fields):
    """The engine isn't among this registry's, and the message says which one is wanted."""
    entry = ENTRY if fields else with_(environment=PluginSpec(kind="bwrap"))
    with pytest.raises(ConfigError, match="harbor"):
        bind_benchmark(entry, [task(**fields)], registry=registry)


def test_tasks_without_a_verifier_need_a_folder_that_brings_its_tests(registry):
    class Anything:
        name = "harbor"

        def run(self, tasks, policy, limits): ...

    registry.register("rollout_engine", "harbor", Anything)
    native = HarborTask(task_id="t", instruction="", path="/tasks/t")
    assert isinstance(bind_benchmark(ENTRY, [native], registry=registry).engine, Anything)


def test_verifier_params_are_checked_once_for_each_set(registry):
    class Strict:
        @attrs.frozen(kw_only=True)
        class Config:
            n: int = 0

        def __init__(self, n):
            self.n = n

        def __call__(self, model_output, expected, params):
            return 1.0

    registry.register("verifier", "strict", Strict)

    def tasks(**params) -> list[HarborTask]:
        return [HarborTask(task_id="t", instruction="?", verifier=VerifierSpec(name="strict", params=params))]

    assert bind_benchmark(ENTRY, tasks(n=3), registry=registry)
    with pytest.raises(ConfigError, match=r"task 't'.*\bm\b"):
        bind_benchmark(ENTRY, tasks(m=3), registry=registry)
