import asyncio
from types import SimpleNamespace

import attrs
import pytest

from evsys.errors import StoreError
from evsys.types import EvaluationResult, NoScore, Rollout, Score, Usage
from evsys_runtime.config.model import BenchmarkConfig, PluginSpec
from evsys_runtime.evaluation.benchmarks import bind_benchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.rendering.chat import ChatTemplateRenderer

RENDERER = ChatTemplateRenderer()


@pytest.fixture
def make(registry, task, notes):
    """Makes an evaluator over entries with three tasks each."""

    def build(*entries: BenchmarkConfig, tasks=None, **options) -> Evaluator:
        tasks = tasks or [task(f"t{i}", f"question {i}", metadata={"topic": "ab"[i % 2]}) for i in range(3)]
        bound = [bind_benchmark(entry, tasks, registry=registry, path="$") for entry in entries or [entry_()]]
        options = {"seeds": seeds, "registry": registry, "record": notes, "log": notes} | options
        return Evaluator(bound, RENDERER, **options)

    return build


def entry_(name: str = "val", **fields) -> BenchmarkConfig:
    return BenchmarkConfig(**{"name": name, "path": "x", "metrics": ("mean_reward",), **fields})


def seeds(purpose: str, index: int = 0) -> int:
    return sum(map(ord, purpose)) * 1000 + index


def submitted(evaluator: Evaluator, step: int, snapshot) -> list[EvaluationResult]:
    """All results once what is due at a step is scored."""

    async def both():
        await evaluator.submit(step, snapshot)
        return list(await evaluator.drain())

    return asyncio.run(both())


def score(evaluator: Evaluator, snapshot, step: int = 5, place: int = 0) -> EvaluationResult:
    return asyncio.run(evaluator.score(evaluator.benchmarks[place], snapshot, step))


# --- one scoring ------------------------------------------------------------------------------------------------


def test_a_scoring_tells_everything_that_a_conclusion_needs(make, script):
    snapshot = script(lambda text: "yes" if text in ("question 0", "question 2") else "no", version=5)
    entry = entry_(
        num_samples=2, metrics=("mean_reward", "pass@2"), breakdown_keys=("topic",), cluster_key="topic"
    )
    result = score(make(entry), snapshot)
    assert (result.benchmark, result.split, result.step, result.status) == ("val", "val", 5, "completed")
    assert (result.tasks, result.num_samples, result.scored, result.no_score) == (3, 2, 6, 0)
    assert result.task_rewards == {"t0": (1.0, 1.0), "t1": (0.0, 0.0), "t2": (1.0, 1.0)}
    assert result.clusters == {"t0": "a", "t1": "b", "t2": "a"}
    assert result.metrics["mean_reward"].value == result.metrics["pass@2"].value == pytest.approx(2 / 3)
    assert result.metrics["mean_reward"].method == "clustered t"
    assert result.breakdown["topic"]["a"]["mean_reward"].value == 1.0
    assert result.breakdown["topic"]["b"]["mean_reward"].value == 0.0
    assert result.benchmark_hash.startswith("sha256:")
    assert result.verifier_hash.startswith("sha256:")
    assert result.usage.completion_tokens == 4 * 4 + 2 * 3
    assert result.usage.prompt_tokens == 2 * sum(
        len(RENDERER.tokenizer.encode(text)) for text, _ in snapshot.asked[::2]
    )
    assert result.model is None
    assert result.seconds > 0
    assert result.failure is None
    assert snapshot.closed == 0


def test_rollouts_and_metrics_go_on_record_in_the_phase_of_the_split(make, script, notes):
    evaluator = make(entry_(), entry_("goal", split="test", num_samples=2))
    score(evaluator, script())
    score(evaluator, script(), place=1)
    assert notes.rollouts[:3] == [(5, f"t{i}", 0, "validation", {"benchmark": "val"}) for i in range(3)]
    assert {phase for _, _, _, phase, _ in notes.rollouts[3:]} == {"test"}
    assert len(notes.rollouts) == 3 + 6
    step, values, phase = notes.lines[1]
    assert (step, phase) == (5, "test")
    assert values["test/goal/mean_reward"] == 1.0
    assert (values["test/goal/scored"], values["test/goal/no_score"]) == (6.0, 0.0)
    assert [event for event, _ in notes.events] == ["evaluation.started", "evaluation.finished"] * 2


def test_the_seconds_of_a_scoring_are_those_that_passed_and_not_the_sum_of_its_rollouts(make, script):
    """Each rollout claims an hour of its own."""

    class Hours:
        def run(self, tasks, policy, limits):
            async def stream():
                for task in tasks:
                    yield Rollout(
                        task_id=task.task_id,
                        sample_index=0,
                        score=Score(value=1.0),
                        usage=Usage(seconds=3600.0, completion_tokens=2),
                    )

            return stream()

    evaluator = make()
    evaluator.benchmarks = (attrs.evolve(evaluator.benchmarks[0], engine=Hours()),)
    result = score(evaluator, script())
    assert 0 < result.usage.seconds == result.seconds < 3600
    assert result.usage.completion_tokens == 6


def test_the_mean_of_each_component_of_the_scores_goes_on_record(make, script, task, registry, notes):
    def judged(model_output, expected, params):
        return Score(value=1.0, components={"format": float(expected), **({"tone": 0.5} if expected else {})})

    registry.register("verifier", "judged", judged)
    tasks = [task(f"t{i}", verifier="judged", expected=i) for i in range(3)]
    score(make(tasks=tasks), script())
    [(_, values, _)] = notes.lines
    assert values["val/val/components/format"] == 1.0
    assert values["val/val/components/tone"] == 0.5


def test_listeners_hear_of_rollouts_and_result_once_bound(make, script, notes):
    evaluator = make()
    score(evaluator, script())
    assert notes.emitted == []
    ctx = SimpleNamespace(hooks=notes, pause=None)
    evaluator.bind(ctx)
    result = score(evaluator, script(), step=6)
    [(first, rollouts), (second, told)] = notes.emitted[-2:]
    assert (first, second) == ("evsys_rollouts_finished", "evsys_evaluation_finished")
    assert (rollouts["ctx"], rollouts["step"], rollouts["phase"], len(rollouts["rollouts"])) == (
        ctx,
        6,
        "validation",
        3,
    )
    assert told == {"ctx": ctx, "evaluation": result}


@pytest.mark.parametrize("samples", [1, 2])
def test_listeners_hear_how_many_tasks_have_all_their_samples(make, script, notes, samples):
    evaluator = make(entry_(num_samples=samples))
    evaluator.bind(SimpleNamespace(hooks=notes, pause=None))
    score(evaluator, script())
    told = [facts for hook, facts in notes.emitted if hook == "evsys_evaluation_advanced"]
    assert [(facts["done"], facts["total"]) for facts in told] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert {(facts["benchmark"], facts["step"]) for facts in told} == {("val", 5)}


def test_listeners_of_a_large_scoring_are_told_now_and_then(make, script, notes, task, monkeypatch):
    monkeypatch.setattr("evsys_runtime.evaluation.progress.MOST_TOLD", 3)
    evaluator = make(tasks=[task(f"t{i}", f"question {i}") for i in range(10)])
    evaluator.bind(SimpleNamespace(hooks=notes, pause=None))
    score(evaluator, script())
    told = [facts["done"] for hook, facts in notes.emitted if hook == "evsys_evaluation_advanced"]
    assert told == [0, 3, 6, 9, 10]


@pytest.mark.parametrize(
    ("every", "start", "end", "times"), [(None, 0, 10, 1), (5, 0, 10, 2), (4, 0, 10, 3), (4, 4, 10, 2)]
)
def test_the_time_of_scorings_to_come_is_that_of_the_last_times_their_number(
    make, script, every, start, end, times
):
    evaluator = make(entry_(run_every=every))
    assert evaluator.estimate(start, end) is None
    seconds = score(evaluator, script()).seconds
    assert evaluator.estimate(start, end) == pytest.approx(times * seconds)


def test_the_time_of_a_scoring_elsewhere_counts_until_there_is_an_own(make, script):
    evaluator = make(expected_seconds={"val": 1000.0})
    assert evaluator.estimate(0, 10) == 1000.0
    score(evaluator, script())
    assert evaluator.estimate(0, 10) < 1000.0


def test_metrics_whose_direction_is_unknown_are_told(make, script, registry):
    class Plain:
        name = "plain"

        def compute(self, task_rewards):
            return 0.5

    registry.register("metric", "plain", Plain)
    [warning] = score(make(entry_(metrics=("plain", "mean_reward"))), script()).warnings
    assert "'plain' declares no direction" in warning


# --- pairing and determinism ------------------------------------------------------------------------------------


def test_arms_that_share_a_seed_are_paired_rollout_by_rollout(make, script):
    entry = entry_(num_samples=4)
    runs = []
    for _ in range(2):
        snapshot = script()
        score(make(entry), snapshot)
        runs.append([(text, params.seed) for text, params in snapshot.asked])
    assert runs[0] == runs[1]
    assert len({seed for _, seed in runs[0]}) == 12
    other = script()
    score(make(entry, seeds=lambda purpose, index=0: 1), other)
    assert {params.seed for _, params in other.asked}.isdisjoint({seed for _, seed in runs[0]})


def test_two_entries_and_two_samples_never_share_a_seed(make, script):
    evaluator = make(entry_("a", num_samples=2), entry_("b", num_samples=2))
    snapshot = script()
    for place in range(2):
        score(evaluator, snapshot, place=place)
    assert len({params.seed for _, params in snapshot.asked}) == 12


def test_in_the_loop_and_after_it_the_same_prompts_are_sampled_the_same_way(make, script):
    evaluator = make(
        entry_(run_every=5, max_tokens=33, num_samples=2, system_prompt="be brief", temperature=0.5)
    )
    inside, after = script(version=5), script(version=7)

    async def train():
        await evaluator.submit(5, inside)
        return await evaluator.final(7, after)

    first, last = asyncio.run(train())
    assert inside.asked == after.asked
    assert (inside.asked[0][1].max_tokens, inside.asked[0][1].temperature) == (33, 0.5)
    assert first.task_rewards == last.task_rewards


def test_deterministic_runs_sample_in_waves(make, script, registry):
    seen = []

    class Spy:
        name = "direct"

        async def run(self, tasks, policy, limits):
            seen.append(limits)
            for task in tasks:
                yield Rollout(task_id=task.task_id, sample_index=0, score=Score(value=1.0))

    registry._local["rollout_engine", "direct"] = Spy
    for deterministic in (False, True):
        score(make(entry_(n_concurrent=3), deterministic=deterministic, timeout_seconds=9.0), script())
    assert [(limits.wave, limits.n_concurrent, limits.timeout_seconds) for limits in seen] == [
        (False, 3, 9.0),
        (True, 3, 9.0),
    ]


# --- when scoring happens ---------------------------------------------------------------------------------------


def test_an_entry_is_due_every_so_many_steps_and_once_at_each(make, script):
    evaluator = make(entry_(run_every=3), entry_("late"))
    assert [step for step in range(8) if evaluator.due(step)] == [3, 6]
    snapshot = script()
    assert [r.benchmark for r in submitted(evaluator, 3, snapshot)] == ["val"]
    assert not evaluator.due(3)
    assert snapshot.closed == 1


def test_untrained_weights_are_scored_on_every_entry_when_asked(make, script):
    evaluator = make(entry_(run_every=3), entry_("late"), score_untrained=True)
    assert evaluator.due(0)
    assert [(r.benchmark, r.step) for r in submitted(evaluator, 0, script())] == [("val", 0), ("late", 0)]
    assert not evaluator.due(0)


def test_scorings_that_are_known_already_are_not_repeated(make, script):
    first = make(score_untrained=True)
    shared = score(first, script(), step=0)
    second = make(score_untrained=True, known=[shared])
    assert not second.due(0)
    assert asyncio.run(second.drain()) == [shared]


def test_the_last_scoring_covers_every_entry_and_repeats_none(make, script):
    evaluator = make(entry_(run_every=4), entry_("late"))
    inside, after = script(), script()

    async def train():
        await evaluator.submit(4, inside)
        return await evaluator.final(4, after)

    results = asyncio.run(train())
    assert [(r.benchmark, r.step) for r in results] == [("val", 4), ("late", 4)]
    assert len(after.asked) == 3
    assert after.closed == 1


def test_a_last_scoring_that_cannot_happen_is_recorded_missing_with_its_reason(make, notes):
    evaluator = make(entry_(), entry_("goal", split="test"))
    results = asyncio.run(evaluator.final(9, None, reason="the backend was gone"))
    assert [(r.benchmark, r.split, r.status, r.failure.message) for r in results] == [
        ("val", "val", "missing", "the backend was gone"),
        ("goal", "test", "missing", "the backend was gone"),
    ]
    assert [(event, facts["reason"]) for event, facts in notes.events] == [
        ("evaluation.missing", "the backend was gone")
    ] * 2


def test_results_come_by_step_then_by_entry(make, script):
    evaluator = make(entry_("b", run_every=2), entry_("a", run_every=1))

    async def train():
        for step in (2, 1):
            await evaluator.submit(step, script())
        return await evaluator.drain()

    assert [(r.step, r.benchmark) for r in asyncio.run(train())] == [(1, "a"), (2, "b"), (2, "a")]


# --- failures ---------------------------------------------------------------------------------------------------


def crashing(share: int):
    """A verifier that fails on one task in `share`."""

    def verifier(model_output, expected, params, rollout):
        if int(rollout.task_id[1:]) % share == 0:
            raise RuntimeError("grader broke")
        return 1.0

    return verifier


@pytest.mark.parametrize(("share", "status"), [(20, "completed"), (19, "invalid")])
def test_more_than_five_percent_without_a_score_say_nothing(make, script, registry, task, share, status):
    registry.register("verifier", "crashing", crashing(share))
    tasks = [task(f"t{i}", verifier="crashing") for i in range(20)]
    result = score(make(tasks=tasks), script())
    assert result.status == status
    assert result.scored + result.no_score == 20
    assert result.metrics["mean_reward"].value == 1.0
    assert result.metrics["mean_reward"].excluded == result.no_score
    if status == "invalid":
        assert "2 of 20 rollouts have no score, more than 5%" in result.failure.message
        assert "2 x verifier: verifier 'crashing': RuntimeError: grader broke" in result.failure.message
    else:
        assert "leaves out 1 of 20 tasks" in result.warnings[0]


def test_a_crashed_rollout_is_neither_a_zero_nor_dropped(make, script, registry):
    class Half:
        async def run(self, task, model, tools, ctx):
            if task.task_id == "t0":
                raise RuntimeError("lost")
            return "yes"

    registry._local["agent", "chat"] = Half
    result = score(make(), script())
    assert (result.status, result.scored, result.no_score) == ("invalid", 2, 1)
    assert result.task_rewards == {"t1": (1.0,), "t2": (1.0,)}
    assert result.metrics["mean_reward"].value == 1.0
    assert result.failure.boundary == "rollout"


def test_a_metric_that_fails_is_named_and_the_scoring_holds(make, script, registry):
    class Broken:
        name = "broken"

        def compute(self, task_rewards):
            raise ZeroDivisionError("by zero")

    registry.register("metric", "broken", Broken)
    result = score(make(entry_(metrics=("broken", "mean_reward"))), script())
    assert (result.status, result.fully_scored) == ("completed", False)
    [(name, reason)] = result.failed_metrics.items()
    assert name == "broken"
    assert reason.startswith("ZeroDivisionError: by zero (")
    assert result.failure.plugin == "broken"
    assert result.failure.error_type == "ZeroDivisionError"
    assert "by zero" in result.failure.traceback
    assert result.metrics["mean_reward"].value == 1.0
    assert len(result.task_rewards) == 3


def broken_engine(kind: str):
    class Broken:
        name = "direct"

        async def run(self, tasks, policy, limits):
            made = [Rollout(task_id=task.task_id, sample_index=0, score=Score(value=1.0)) for task in tasks]
            if kind == "raises":
                yield made[0]
                raise OSError("no more files")
            chosen = {
                "loses": made[:-1],
                "repeats": [*made, made[0]],
                "invents": [*made, attrs.evolve(made[0], task_id="x")],
            }
            for rollout in chosen[kind]:
                yield rollout

    return Broken


@pytest.mark.parametrize(
    ("kind", "boundary", "message"),
    [
        ("raises", "rollout", "OSError: no more files"),
        ("loses", "plugin", "2 rollouts instead of 3: task 't2' sample 0 came 0 times"),
        ("repeats", "plugin", "4 rollouts instead of 3: task 't0' sample 0 came 2 times"),
        ("invents", "plugin", "4 rollouts instead of 3: task 'x' sample 0 came 1 times"),
    ],
)
def test_an_engine_that_breaks_its_contract_fails_the_scoring_and_not_the_training(
    make, script, registry, kind, boundary, message
):
    registry._local["rollout_engine", "direct"] = broken_engine(kind)
    evaluator = make(entry_(run_every=1))
    snapshot = script()
    [result] = submitted(evaluator, 1, snapshot)
    assert result.status == "failed"
    assert message in result.failure.message
    assert result.failure.boundary == boundary
    assert snapshot.closed == 1


def test_a_record_that_cannot_be_written_ends_the_run(make, script, notes):
    def full(*_args, **_facts):
        raise StoreError("no space left")

    notes.metrics = full
    evaluator = make(entry_(run_every=1))
    with pytest.raises(StoreError, match="no space left"):
        submitted(evaluator, 1, script())


# --- who answers ------------------------------------------------------------------------------------------------


def test_an_entrys_own_inference_client_answers_instead_of_the_model(make, script, registry):
    from evsys.types import Completion, Message

    class Oracle:
        async def generate(self, messages, sampling, *, n=1, tools=()):
            return [Completion(message=Message(role="assistant", content="yes"), finish_reason="stop")] * n

    registry.register("inference_client", "oracle", Oracle)
    snapshot = script(lambda _text: "no")
    result = score(make(entry_(inference=PluginSpec(kind="oracle"))), snapshot)
    assert result.metrics["mean_reward"].value == 1.0
    assert snapshot.asked == []


def test_the_model_client_can_be_injected(make, script):
    from evsys_runtime.rendering.policy_client import PolicyClient

    asked = []

    def make_model(snapshot, benchmark):
        asked.append((snapshot, benchmark.name))
        return PolicyClient(script(), RENDERER)

    snapshot = script(lambda _text: "no")
    assert score(make(make_model=make_model), snapshot).metrics["mean_reward"].value == 1.0
    assert asked == [(snapshot, "val")]


def test_scores_of_other_models_do_not_stand_for_the_arms_own(make, script):
    foreign = EvaluationResult(benchmark="val", split="val", step=0, status="completed", model="api-model")
    assert make(score_untrained=True, known=[foreign]).due(0)


def test_missing_scores_of_all_rollouts_leave_the_metrics_unavailable(make, script, registry, task):
    def never(model_output, expected, params):
        return NoScore(reason="no judge today", retryable=True)

    registry.register("verifier", "never", never)
    result = score(make(tasks=[task("t0", verifier="never")]), script())
    assert result.status == "invalid"
    assert result.metrics["mean_reward"].value is None
    assert result.task_rewards == {}


# --- after a resume ---------------------------------------------------------------------------------------------


def test_each_scoring_is_handed_over_whole_once_its_metrics_are_on_record(make, script, notes):
    kept = []
    evaluator = make(keep=lambda result: kept.append((len(notes.lines), result)))
    result = score(evaluator, script(lambda text: "yes"))
    assert kept == [(1, result)]


def test_what_has_no_weights_any_more_is_missing_with_the_reason(make, notes):
    kept = []
    known = EvaluationResult(benchmark="val", split="val", step=4, status="completed")
    evaluator = make(entry_(run_every=2), entry_("late"), keep=kept.append, known=[known])
    asyncio.run(evaluator.give_up(4, "gone"))
    assert kept == []
    asyncio.run(evaluator.give_up(2, "gone"))
    [lost] = kept
    assert (lost.step, lost.benchmark, lost.status, lost.failure.message) == (2, "val", "missing", "gone")
    assert not evaluator.due(2)
