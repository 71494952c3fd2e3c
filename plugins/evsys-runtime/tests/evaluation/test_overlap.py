"""Scoring beside the training: what is under way, in which order it may end, and that nothing is left behind or lost."""

import asyncio
from types import SimpleNamespace

import pytest

from evsys.errors import RolloutError, StoreError
from evsys_runtime.config.model import BenchmarkConfig, PluginSpec
from evsys_runtime.evaluation.benchmarks import ApiModel, bind_benchmark
from evsys_runtime.evaluation.evaluator import RELEASE_SECONDS, Evaluator
from evsys_runtime.evaluation.progress import advancing
from evsys_runtime.rendering.chat import ChatTemplateRenderer


class Gates:
    """Verdicts on the rollouts of a version wait until that version is let through; `instead` is another verifier."""

    def __init__(self):
        self._open = {}
        self.instead = None

    def of(self, version):
        return self._open.setdefault(version, asyncio.Event())

    def open(self, *versions):
        for version in versions:
            self.of(version).set()

    async def verifier(self, model_output, expected, params, rollout):
        if self.instead is not None:
            return await self.instead()
        await self.of(rollout.policy_version).wait()
        return float(rollout.policy_version)


@pytest.fixture
def gates(registry):
    gates = Gates()
    registry.register("verifier", "held", gates.verifier)
    return gates


@pytest.fixture
def make(registry, task, notes, gates):
    def build(*names, every=1, tasks=1, **options):
        held = [task(f"t{i}", verifier="held") for i in range(tasks)]
        entries = [
            BenchmarkConfig(name=name, path="x", metrics=("mean_reward",), run_every=every)
            for name in names or ("val",)
        ]
        bound = [bind_benchmark(entry, held, registry=registry, path="$") for entry in entries]
        options = {"record": notes, "log": notes} | options
        evaluator = Evaluator(
            bound, ChatTemplateRenderer(), seeds=lambda _purpose, _index=0: 1, registry=registry, **options
        )
        evaluator.bind(SimpleNamespace(hooks=notes, pause=None, warn=notes.warned.append))
        return evaluator

    notes.warned = []
    return build


async def settle():
    """Let everything that can go on do so."""
    for _ in range(50):
        await asyncio.sleep(0)


def told(notes):
    return [a["evaluation"].step for hook, a in notes.emitted if hook == "evsys_evaluation_finished"]


def others():
    return asyncio.all_tasks() - {asyncio.current_task()}


# --- beside the training --------------------------------------------------------------------------------------------


def test_submit_returns_and_scores_are_stored_by_step_whatever_the_order_in_which_they_end(
    make, script, gates, notes
):
    async def train():
        evaluator = make()
        snapshots = [script(version=1), script(version=2)]
        for step, snapshot in enumerate(snapshots, 1):
            await evaluator.submit(step, snapshot)
        await settle()
        assert [snapshot.closed for snapshot in snapshots] == [0, 0]
        assert not evaluator.due(1)
        assert evaluator.results == []
        assert evaluator.pending == [{"step": 1, "benchmark": "val"}, {"step": 2, "benchmark": "val"}]
        gates.open(2)
        await settle()
        assert [r.step for r in evaluator.results] == [2]
        assert evaluator.pending == [{"step": 1, "benchmark": "val"}]
        gates.open(1)
        results = await evaluator.drain()
        assert [(r.step, r.task_rewards) for r in results] == [(1, {"t0": (1.0,)}), (2, {"t0": (2.0,)})]
        assert told(notes) == [2, 1]
        assert [snapshot.closed for snapshot in snapshots] == [1, 1]
        assert evaluator.pending == []
        assert others() == set()

    asyncio.run(train())


def test_beyond_what_may_be_in_flight_submit_waits_for_a_scoring_to_end(make, script, gates):
    async def train():
        evaluator = make(in_flight=2)
        for step in (1, 2):
            await evaluator.submit(step, script(version=step))
        third = asyncio.create_task(evaluator.submit(3, script(version=3)))
        await settle()
        assert not third.done()
        assert [entry["step"] for entry in evaluator.pending] == [1, 2, 3]
        gates.open(2)
        await third
        gates.open(1, 3)
        assert [r.step for r in await evaluator.drain()] == [1, 2, 3]

    asyncio.run(train())


def test_the_entries_of_a_snapshot_are_scored_one_after_another(make, script, gates, notes):
    async def train():
        evaluator = make("a", "b")
        await evaluator.submit(1, script(version=1))
        await settle()
        assert [facts["benchmark"] for event, facts in notes.events if event == "evaluation.started"] == ["a"]
        gates.open(1)
        assert [r.benchmark for r in await evaluator.drain()] == ["a", "b"]

    asyncio.run(train())


def test_the_last_scoring_waits_for_those_before_it_and_repeats_none_that_is_under_way(make, script, gates):
    async def train():
        evaluator = make("val", "late")
        inside, after = script(version=4), script(version=4)
        evaluator.benchmarks = (evaluator.benchmarks[0],)
        late = make("val", "late").benchmarks[1]
        await evaluator.submit(4, inside)
        evaluator.benchmarks = (*evaluator.benchmarks, late)
        last = asyncio.create_task(evaluator.final(4, after))
        await settle()
        assert not last.done()
        gates.open(4)
        assert [(r.benchmark, r.status) for r in await last] == [("val", "completed"), ("late", "completed")]
        assert (len(inside.asked), len(after.asked)) == (1, 1)
        assert (inside.closed, after.closed) == (1, 1)

    asyncio.run(train())


# --- what doesn't end -----------------------------------------------------------------------------------------------


def test_a_scoring_in_which_nothing_ends_any_more_has_failed_and_gives_its_place_to_the_next(
    make, script, gates
):
    async def train():
        evaluator = make(in_flight=1, timeout_seconds=0.01, silent_seconds=0.01)
        stuck = script(version=1)
        gates.open(2)
        await evaluator.submit(1, stuck)
        await evaluator.submit(2, script(version=2))
        lost, scored = await evaluator.drain()
        assert (lost.step, lost.status, lost.failure.boundary) == (1, "failed", "rollout")
        assert lost.failure.message.startswith("no rollout ended for 0.02 s, so the scoring was given up")
        assert (scored.step, scored.status) == (2, "completed")
        assert stuck.closed == 1
        assert others() == set()

    asyncio.run(train())


def test_an_engine_that_allows_a_rollout_more_time_or_tries_is_waited_for_longer(make):
    evaluator = make(timeout_seconds=10.0, silent_seconds=1.0)
    [entry] = evaluator.benchmarks
    assert evaluator._rollouts.patience(entry) == 11.0
    object.__setattr__(entry.engine, "rollout_seconds", lambda allowed: 3 * allowed)
    assert evaluator._rollouts.patience(entry) == 31.0


def test_the_time_begins_anew_whenever_something_ends():
    async def advance():
        now = 0.0
        asyncio.get_running_loop().time = lambda: now
        async with advancing(10.0) as advanced:
            for _ in range(5):
                now += 8.0
                await asyncio.sleep(0)
                advanced()
        with pytest.raises(RolloutError, match="no rollout ended for 10 s"):
            async with advancing(10.0):
                now += 11.0
                await asyncio.Event().wait()

    asyncio.run(advance())


def test_a_timeout_of_the_blocks_own_is_left_as_it_is():
    async def own():
        async with advancing(10.0):
            raise TimeoutError("of a socket")

    with pytest.raises(TimeoutError, match="of a socket"):
        asyncio.run(own())


# --- the end of a run -----------------------------------------------------------------------------------------------


def test_closing_ends_every_scoring_and_records_what_was_cut_off(make, script, gates, notes):
    async def train():
        evaluator = make("a", "b", tasks=3, in_flight=1)
        gates.open(0)
        snapshots = [script(version=step) for step in (1, 2)]
        await evaluator.submit(1, snapshots[0])
        queued = asyncio.create_task(evaluator.submit(2, snapshots[1]))
        await settle()
        queued.cancel()
        await asyncio.gather(queued, return_exceptions=True)
        await evaluator.close("the run was interrupted")
        assert others() == set()
        assert [snapshot.closed for snapshot in snapshots] == [1, 1]
        assert evaluator.pending == []
        results = await evaluator.drain()
        assert [(r.step, r.benchmark, r.status) for r in results] == [
            (1, "a", "missing"),
            (1, "b", "missing"),
            (2, "a", "missing"),
            (2, "b", "missing"),
        ]
        assert {r.failure.message for r in results} == {"the run was interrupted"}
        assert told(notes) == []
        missing = [facts["step"] for event, facts in notes.events if event == "evaluation.missing"]
        assert sorted(missing) == [1, 1, 2, 2]
        await evaluator.close("again")
        assert len(evaluator.results) == 4

    asyncio.run(train())


def test_a_scoring_that_had_not_begun_is_cut_off_too_and_its_snapshot_closed(make, script):
    async def train():
        evaluator, snapshot = make(), script()
        await evaluator.submit(1, snapshot)
        await evaluator.close("over")
        assert (snapshot.asked, snapshot.closed, others()) == ([], 1, set())
        late = script()
        await evaluator.submit(2, late)
        assert [(r.step, r.status) for r in await evaluator.drain()] == [(1, "missing"), (2, "missing")]
        assert (late.asked, late.closed) == ([], 1)

    asyncio.run(train())


def test_what_a_scoring_that_is_cut_off_had_used_counts(make, script, gates):
    async def train():
        evaluator = make(tasks=2)
        first = True

        async def verdict():
            nonlocal first
            if not first:
                await asyncio.Event().wait()
            first = False
            return 1.0

        gates.instead = verdict
        await evaluator.submit(1, script())
        await settle()
        await evaluator.close("over")
        [result] = evaluator.results
        assert (result.status, result.scored, result.no_score, result.metrics) == ("missing", 1, 0, {})
        assert result.usage.completion_tokens > 0

    asyncio.run(train())


def test_a_plugin_that_goes_on_when_it_is_cancelled_is_left_and_what_it_still_gives_is_dropped(
    make, script, gates, notes, monkeypatch
):
    monkeypatch.setattr("evsys_runtime.evaluation.evaluator.CLOSE_SECONDS", 0.01)

    async def train():
        over = asyncio.Event()

        async def stubborn():
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    continue
            return 1.0

        evaluator = make()
        gates.instead = stubborn
        await evaluator.submit(1, script())
        await settle()
        await evaluator.close("over")
        assert ("evaluation.left_running", {"scorings": 1, "seconds": 0.01}) in notes.events
        assert [r.status for r in evaluator.results] == ["missing"]
        over.set()
        await settle()
        assert [r.status for r in evaluator.results] == ["missing"]
        assert others() == set()

    asyncio.run(train())


def test_who_is_cancelled_while_waiting_ends_no_scoring(make, script, gates):
    async def train():
        evaluator = make()
        await evaluator.submit(1, script(version=1))
        waiting = asyncio.create_task(evaluator.drain())
        await settle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gates.open(1)
        assert [r.status for r in await evaluator.drain()] == ["completed"]

    asyncio.run(train())


def test_a_scoring_that_is_awaited_and_cancelled_is_on_record_and_the_cancellation_goes_on(
    make, script, notes
):
    async def cancel():
        evaluator = make()
        scoring = asyncio.create_task(evaluator.score(evaluator.benchmarks[0], script(), 3))
        await settle()
        scoring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await scoring
        [result] = evaluator.results
        assert (result.step, result.status) == (3, "missing")

    asyncio.run(cancel())


def test_a_full_disk_does_not_stop_a_cancellation(make, script, notes):
    def full(*_args, **_facts):
        raise StoreError("no space left")

    async def cancel():
        evaluator = make()
        scoring = asyncio.create_task(evaluator.score(evaluator.benchmarks[0], script(), 3))
        await settle()
        notes.metrics = full
        scoring.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await scoring
        assert "no space left" in cancelled.value.__notes__[0]

    asyncio.run(cancel())


# --- faults ---------------------------------------------------------------------------------------------------------


def test_a_record_that_can_not_be_written_ends_the_training_at_the_next_submit(make, script, gates, notes):
    def full(*_args, **_facts):
        raise StoreError("no space left")

    async def train():
        evaluator = make()
        notes.metrics = full
        gates.open(1)
        await evaluator.submit(1, script(version=1))
        await settle()
        snapshot = script(version=2)
        with pytest.raises(StoreError, match="no space left"):
            await evaluator.submit(2, snapshot)
        assert snapshot.closed == 1

    asyncio.run(train())


def test_a_verifier_that_cancels_its_own_task_gives_no_score_and_ends_nothing_else(make, script, gates):
    async def gives_up():
        raise asyncio.CancelledError

    async def train():
        evaluator = make()
        gates.instead = gives_up
        await evaluator.submit(1, script())
        [result] = await evaluator.drain()
        assert result.status == "invalid"
        assert "raised CancelledError by itself" in repr(result)

    asyncio.run(train())


def test_a_snapshot_that_can_not_be_closed_is_warned_of_and_its_score_stays(make, script, gates, notes):
    class Stuck(script):
        async def close(self):
            raise OSError("no such handle")

    async def train():
        evaluator = make()
        gates.open(1)
        await evaluator.submit(1, Stuck(version=1))
        assert [r.status for r in await evaluator.drain()] == ["completed"]
        assert notes.warned == ["a snapshot couldn't be closed: OSError: no such handle"]

    asyncio.run(train())


def test_the_closing_of_a_snapshot_has_a_time_of_its_own_and_each_counts_as_movement(make, script, gates):
    class Slow(script):
        async def close(self):
            await gates.of("close").wait()

    async def train():
        evaluator = make()
        gates.open(1)
        assert (evaluator.patience, evaluator.closings) == (0.0, 0)
        await evaluator.submit(1, Slow(version=1))
        await settle()
        assert evaluator.pending == []
        assert (evaluator.patience, evaluator.closings) == (RELEASE_SECONDS, 1)
        gates.open("close")
        await evaluator.drain()
        assert (evaluator.patience, evaluator.closings) == (0.0, 1)

    asyncio.run(train())


def test_an_api_model_has_the_time_of_a_scoring_while_it_is_asked(make, gates):
    asked = asyncio.Event()

    class Asked:
        async def generate(self, messages, sampling, *, n=1, tools=()):
            asked.set()
            await gates.of("answer").wait()
            raise ConnectionError("the service went away")

    async def ask():
        evaluator = make(timeout_seconds=10.0, silent_seconds=1.0)
        [entry] = evaluator.benchmarks
        model = ApiModel(name="api", client=Asked(), spec=PluginSpec(kind="asked"))
        scoring = asyncio.create_task(evaluator.score_model(entry, model))
        await asked.wait()
        assert evaluator.patience == 11.0
        gates.open("answer")
        await scoring
        assert evaluator.patience == 0.0

    asyncio.run(ask())
