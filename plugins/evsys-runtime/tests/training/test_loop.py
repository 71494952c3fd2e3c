"""The training loop: what a step is, when it stops, and that a resumed run equals one that was never interrupted."""

import asyncio
import time

import numpy as np
import pytest
from training_runs import Rows, chat_rows

from evsys import HookManager
from evsys.errors import AlgorithmError, BackendError, BudgetExceeded, DataError, PluginContractError
from evsys.types import Datum, ForwardResult, TrainingBatch
from evsys_backend_mock import MockBackend
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_runtime.training.foreseen import foresee
from evsys_runtime.training.loop import TrainingLoop
from evsys_runtime.training.training_kind import capabilities_of


class Chatter(BaseAlgorithm):
    """Trains on the text of its rows; remembers how much it has seen, which its batches depend on."""

    def __init__(self, **fields):
        super().__init__(**{"learning_rate": 1e-3, "batch_size": 4, "steps": 6, "save_every": 0, **fields})
        self.seen = 0
        self.calls = []

    async def build_batch(self, step_idx):
        self.calls.append(("build", step_idx))
        rows = [self.ctx.data[i] for i in self.take_rows(step_idx)]
        self.seen += len(rows)
        tokenizer = self.ctx.clients.policy.tokenizer
        data = []
        for row in rows:
            tokens = np.array(tokenizer.encode(row.messages[0].content))
            weights = np.full(len(tokens) - 1, 1e-2 * (1 + self.seen % 3))
            data.append(
                Datum(tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:], "weights": weights})
            )
        return TrainingBatch(
            data=data, row_ids=tuple(row.row_id for row in rows), metrics={"seen": self.seen}
        )

    def step_metrics(self, step_idx, batch, result):
        self.calls.append(("metrics", step_idx))
        return {"own": float(step_idx)}

    def state(self):
        return {"seen": self.seen}

    def load_state(self, state):
        self.seen = state["seen"]


class Ahead(Chatter):
    prefetch = True


# --- a step ----------------------------------------------------------------------------------------------------------


async def test_a_step_is_journalled_before_and_after_and_counted_from_one(run):
    result = await run.train(Chatter(), chat_rows())
    journal = [(line["event"], line["step"]) for line in run.record.read_journal()]
    assert journal == [(event, step) for step in range(1, 7) for event in ("intent", "done")]
    assert (result.status, result.steps, result.stop_reason) == ("completed", 6, None)
    assert result.run_id == "run-s0"
    assert result.final_checkpoint == "checkpoints/6"


async def test_metrics_of_loop_loss_batch_and_algorithm_are_recorded_at_every_step(run):
    result = await run.train(Chatter(lr_schedule="linear"), chat_rows())
    steps = [step for step, _ in run.metrics()]
    values = run.metrics()[2][1]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert values["learning_rate"] == pytest.approx(1e-3 * 4 / 6)
    assert values["own"] == 2.0
    assert values["seen"] == 12.0
    assert values["loss_tokens"] == values["tokens"] > 0
    assert {"loss", "grad_norm"} <= set(values)
    assert result.metrics == run.metrics()[-1][1]
    assert result.usage.trained_tokens == sum(values["tokens"] for _, values in run.metrics())


class Slow:
    """A client whose calls are queued and done one after the other in a task of its own."""

    def __init__(self, client):
        self._client = client
        self._last = None
        self.submitted = []

    def __getattr__(self, name):
        return getattr(self._client, name)

    def _queue(self, what, call):
        self.submitted.append(what)
        before = self._last

        async def later():
            if before is not None:
                await asyncio.wait([before])
            for _ in range(3):
                await asyncio.sleep(0)
            self.submitted.append(f"{what} done")
            return await call()

        self._last = asyncio.ensure_future(later())
        return self._last

    def forward_backward(self, *arguments):
        return self._queue("forward_backward", lambda: self._client.forward_backward(*arguments))

    def optim_step(self, params):
        return self._queue("optim_step", lambda: self._client.optim_step(params))


async def test_forward_backward_and_the_optimiser_are_submitted_together(run):
    clients = []
    await run.train(
        Chatter(steps=1), chat_rows(), client=lambda client: clients.append(Slow(client)) or clients[0]
    )
    assert clients[0].submitted == [
        "forward_backward",
        "optim_step",
        "forward_backward done",
        "optim_step done",
    ]


async def test_with_prefetch_the_next_batch_is_built_while_the_backend_computes(new_run):
    ahead, behind = Ahead(), Chatter()
    for name, algorithm in (("ahead", ahead), ("behind", behind)):
        await new_run(name).train(algorithm, chat_rows(), client=Slow)
    assert ahead.calls[:4] == [("build", 0), ("build", 1), ("metrics", 0), ("build", 2)]
    assert behind.calls[:4] == [("build", 0), ("metrics", 0), ("build", 1), ("metrics", 1)]
    assert ahead.calls.count(("build", 5)) == 1
    assert ("build", 6) not in ahead.calls


async def test_prefetch_changes_no_bit(new_run):
    runs = [new_run("a"), new_run("b")]
    for run, algorithm in zip(runs, (Ahead(), Chatter()), strict=True):
        await run.train(algorithm, chat_rows())
    assert runs[0].weights() == runs[1].weights()
    assert runs[0].metrics() == runs[1].metrics()


async def test_other_tasks_run_between_steps_although_the_backend_never_waits(run):
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    async with run.attempt(chat_rows()) as ctx:
        ticking = asyncio.create_task(tick())
        await Chatter(steps=20).train(ctx)
        ticking.cancel()
    assert len(ticks) >= 20


async def test_the_heart_beats_and_the_budget_is_charged_at_every_step(run):
    beats, charges = [], []

    class Meter:
        def charge(self, usage, *, steps=0):
            charges.append((usage.trained_tokens, steps))

    result = await run.train(Chatter(), chat_rows(), heartbeat=lambda: beats.append(1), budget=Meter())
    assert len(beats) >= 6
    assert [steps for _, steps in charges] == [1] * 6
    assert sum(tokens for tokens, _ in charges) == result.usage.trained_tokens


async def test_listeners_hear_the_start_each_step_and_each_checkpoint(run):
    heard = []

    class Listener:
        def evsys_run_started(self, ctx, total_steps):
            heard.append(("started", ctx.run_id, total_steps))

        def evsys_step_finished(self, step, metrics):
            heard.append(("step", step, metrics["own"]))

        async def evsys_checkpoint_saved(self, checkpoint):
            heard.append(("saved", checkpoint.step))

    hooks = HookManager()
    hooks.register(Listener())
    await run.train(Chatter(steps=3, save_every=2), chat_rows(), hooks=hooks)
    assert heard == [
        ("started", "run-s0", 3),
        ("step", 1, 0.0),
        ("step", 2, 1.0),
        ("saved", 2),
        ("step", 3, 2.0),
        ("saved", 3),
    ]


async def test_the_log_tells_every_n_steps_and_the_last(run):
    await run.train(Chatter(steps=5, log_every=2), chat_rows())
    assert [facts["step"] for facts in run.log.named("step.finished")] == [2, 4, 5]


# --- stopping --------------------------------------------------------------------------------------------------------


def stopping_at(step, reason="enough"):
    class Listener:
        def evsys_step_finished(self, ctx, step):
            if step == stop_at:
                ctx.request_stop(reason)

    stop_at = step
    hooks = HookManager()
    hooks.register(Listener())
    return hooks


async def test_a_stop_request_ends_the_run_after_the_step_with_a_checkpoint_and_the_reason(run):
    result = await run.train(Chatter(), chat_rows(), hooks=stopping_at(2))
    assert (result.status, result.steps, result.stop_reason) == ("completed", 2, "enough")
    assert result.final_checkpoint == "checkpoints/2"
    assert [step for step, _ in run.metrics()] == [1, 2]


async def test_a_batch_built_ahead_of_a_stop_is_given_up_and_its_failure_logged(run):
    class Failing(Ahead):
        async def build_batch(self, step_idx):
            if step_idx == 2:
                raise ValueError("never needed")
            return await super().build_batch(step_idx)

    result = await run.train(Failing(), chat_rows(), client=Slow, hooks=stopping_at(2))
    assert (result.status, result.steps) == ("completed", 2)
    assert "never needed" in run.log.named("batch.discarded")[0]["reason"]


async def test_max_steps_shortens_the_run_and_not_the_schedule(run):
    result = await run.train(Chatter(), chat_rows(), max_steps=2)
    assert (result.status, result.steps, result.stop_reason) == ("completed", 2, "max_steps")
    assert [values["learning_rate"] for _, values in run.metrics()] == pytest.approx([1e-3, 1e-3 * 5 / 6])


async def test_a_spent_budget_is_a_stop_that_keeps_the_weights(run):
    class Meter:
        left = 3

        def charge(self, usage, *, steps=0):
            self.left -= steps
            if self.left == 0:
                raise BudgetExceeded("the budget of 3 steps is spent")

    result = await run.train(Chatter(), chat_rows(), budget=Meter())
    assert (result.status, result.steps) == ("budget_stopped", 3)
    assert "3 steps is spent" in result.stop_reason
    assert result.final_checkpoint == "checkpoints/3"


class Hanging:
    """A client whose forward/backward never ends."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return getattr(self._client, name)

    def forward_backward(self, *_arguments):
        return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("algorithm", [Chatter, Ahead])
async def test_cancellation_passes_within_a_second_and_leaves_no_task_behind(run, algorithm):
    async with run.attempt(chat_rows(), client=Hanging) as ctx:
        training = asyncio.create_task(algorithm().train(ctx))
        await run.log.seen("training.started")
        for _ in range(5):
            await asyncio.sleep(0)
        started = time.perf_counter()
        training.cancel()
        with pytest.raises(asyncio.CancelledError):
            await training
        assert time.perf_counter() - started < 1
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert run.warned == []


def test_ctrl_c_passes_unchanged(run):
    class Interrupted(Chatter):
        async def build_batch(self, step_idx):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run.train(Interrupted(), chat_rows()))


# --- failures --------------------------------------------------------------------------------------------------------


async def test_a_failure_in_the_algorithm_is_attributed_to_it_and_earlier_checkpoints_stay(run):
    class Failing(Chatter):
        async def build_batch(self, step_idx):
            if step_idx == 4:
                raise ZeroDivisionError("oops")
            return await super().build_batch(step_idx)

    with pytest.raises(AlgorithmError, match=r"algorithm 'test' failed: ZeroDivisionError: oops"):
        await run.train(Failing(save_every=2), chat_rows())
    assert run.record.checkpoints.latest(run.record.attempts).step == 4


async def test_a_failure_in_the_backend_is_attributed_to_it_and_nothing_is_left_waiting(run):
    class Broken(Slow):
        def forward_backward(self, *arguments):
            async def fail():
                raise OSError("connection lost")

            return self._queue("forward_backward", fail)

    with pytest.raises(BackendError, match="backend 'mock' failed: OSError: connection lost"):
        await run.train(Chatter(), chat_rows(), client=Broken)
    assert [line["event"] for line in run.record.read_journal()] == ["intent"]


@pytest.mark.parametrize(("loss", "norm"), [(float("nan"), 1.0), (1.0, float("inf"))])
async def test_a_loss_or_gradient_that_is_not_finite_ends_the_run_and_the_step_is_not_done(run, loss, norm):
    from evsys.types import OptimResult

    class Exploding:
        def __init__(self, client):
            self._client = client

        def __getattr__(self, name):
            return getattr(self._client, name)

        async def forward_backward(self, data, *_arguments):
            return ForwardResult(logprobs=[], loss=loss, tokens=1)

        async def optim_step(self, params):
            return OptimResult(grad_norm=norm)

    with pytest.raises(AlgorithmError, match=r"of step 1 is (nan|inf)"):
        await run.train(Chatter(), chat_rows(), client=Exploding)
    assert [line["event"] for line in run.record.read_journal()] == ["intent"]


async def test_warnings_reach_the_result_with_their_counts_or_the_runner_when_the_run_fails(new_run):
    class Worried(Chatter):
        def step_metrics(self, step_idx, batch, result):
            self.warn("this looks odd")
            if self.config.batch_size == 3:
                raise ValueError("and now it broke")
            return {}

    result = await new_run("good").train(Worried(), chat_rows())
    assert result.warnings == ("this looks odd (6 times)",)
    bad = new_run("bad")
    with pytest.raises(AlgorithmError):
        await bad.train(Worried(batch_size=3), chat_rows())
    assert bad.warned == ["this looks odd"]


STANDSTILL = "the learning rate is 0 at every step, so nothing is trained"


async def test_a_rate_of_zero_is_told_at_the_start_and_in_the_result(run):
    result = await run.train(Chatter(learning_rate=0.0), chat_rows())
    assert (result.status, result.warnings) == ("completed", (STANDSTILL,))
    events = [(level, event) for level, event, _ in run.log.events]
    assert events.index(("warning", "training.odd")) < events.index(("info", "checkpoint.saved"))
    assert len(set(run.metrics()[0][1]) & {"loss", "learning_rate"}) == 2


@pytest.mark.parametrize(
    "fields", [{"learning_rate": 1e-9}, {"warmup_steps": 5}, {"lr_schedule": "constant"}, {"steps": 1}]
)
async def test_a_rate_that_leaves_zero_is_nothing_to_tell_of(run, fields):
    result = await run.train(Chatter(**fields), chat_rows())
    assert STANDSTILL not in result.warnings


async def test_a_schedule_that_never_leaves_zero_is_told_of(run, monkeypatch):
    monkeypatch.setattr("evsys_runtime.training.schedule.learning_rate_at", lambda *_: 0.0)
    result = await run.train(Chatter(), chat_rows())
    assert STANDSTILL in result.warnings


async def test_a_batch_without_signal_is_counted(run):
    class Flat(Chatter):
        async def build_batch(self, step_idx):
            batch = await super().build_batch(step_idx)
            for datum in batch.data:
                weights = datum.loss_inputs.pop("weights")
                datum.loss_inputs.update(advantages=weights * 0, logprobs=weights)
            batch.loss_fn = "importance_sampling"
            return batch

    result = await run.train(Flat(), chat_rows())
    assert result.warnings == ("a batch had no signal: all its advantages are 0 (6 times)",)


async def test_an_algorithm_that_builds_nothing_is_told_so(run):
    with pytest.raises(AlgorithmError, match="must override build_batch"):
        await run.train(BaseAlgorithm(learning_rate=1e-3, batch_size=1, steps=1), chat_rows())


async def test_a_batch_must_be_built_by_a_coroutine(run):
    class Plain(Chatter):
        def build_batch(self, step_idx):
            return None

    with pytest.raises(
        PluginContractError, match=r"isn't async; define `async def build_batch\(self, step_idx\)`"
    ):
        await run.train(Plain(), chat_rows())


# --- scores ----------------------------------------------------------------------------------------------------------


class Evaluate:
    """Wants scores at some steps, and looks at the weights it gets."""

    def __init__(self, *steps):
        self._steps = set(steps)
        self.seen = []

    def due(self, step):
        return step in self._steps

    async def submit(self, step, snapshot):
        self._steps.discard(step)
        logprobs = await snapshot.compute_logprobs([1, 2, 3])
        self.seen.append((step, snapshot.version, float(logprobs[1])))
        await snapshot.close()


async def test_scores_are_made_on_snapshots_of_the_step_that_is_due(run):
    evaluate = Evaluate(0, 2, 6)
    await run.train(Chatter(), chat_rows(), evaluate=evaluate)
    assert [(step, version) for step, version, _ in evaluate.seen] == [(0, 0), (2, 2), (6, 6)]
    assert len({value for _, _, value in evaluate.seen}) == 3


class Expects:
    """A client that says how long steps take."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return getattr(self._client, name)

    def estimate(self, data, steps):
        return {"seconds": 0.5 * steps, "peak_bytes": 1e6}


class Timed(Evaluate):
    """Knows how long its scorings take."""

    seconds = 3.0

    def estimate(self, start, end):
        return None if self.seconds is None else self.seconds * (end - start)


@pytest.mark.parametrize(
    ("evaluate", "scoring"),
    [
        (None, {"scoring_seconds": 0.0}),
        (Evaluate(), {}),
        (Timed(), {"scoring_seconds": 18.0}),
        (type("Unknown", (Timed,), {"seconds": None})(), {}),
    ],
    ids=["no scoring", "never asked", "known", "unknown"],
)
async def test_the_estimate_has_the_time_of_scorings_where_it_is_known(run, evaluate, scoring):
    told = []

    class Listener:
        def evsys_run_started(self, estimate):
            told.append(estimate)

    hooks = HookManager()
    hooks.register(Listener())
    await run.train(Ahead(), chat_rows(), client=Expects, evaluate=evaluate, hooks=hooks)
    assert told == [{"seconds": 3.0, "peak_bytes": 1e6, "steps": 6, **scoring}]


async def test_what_is_estimated_of_a_resumed_run_is_the_rest_of_it(run):
    told = []

    class Listener:
        def evsys_run_started(self, total_steps, estimate):
            told.append((total_steps, estimate["steps"], estimate["seconds"]))

    killing = killed_after(4, before_saving=False)
    killing.register(Listener())
    with pytest.raises(Killed):
        await run.train(Ahead(save_every=2), chat_rows(), client=Expects, hooks=killing)
    hooks = HookManager()
    hooks.register(Listener())
    await run.train(Ahead(save_every=2), chat_rows(), client=Expects, hooks=hooks, resume=True)
    assert told == [(6, 6, 3.0), (6, 2, 1.0)]


async def test_a_step_that_samples_is_estimated_by_what_it_takes_at_most(run):
    told, asked = [], []

    class Listener:
        def evsys_run_started(self, estimate):
            told.append(estimate)

    class Asked(Expects):
        def estimate(self, data, steps, sampling=None):
            asked.append((len(data), steps, sampling))
            return {"seconds": 1.0 * steps, "peak_bytes": 1e6, "sampled_tokens": 12.0}

    class Samples(Chatter):
        def foreseen(self, step_idx):
            self.calls.append(("foreseen", step_idx))
            return foresee([[1, 2, 3]], count=2, most=6, limit=None)

    hooks = HookManager()
    hooks.register(Listener())
    algorithm = Samples()
    await run.train(algorithm, chat_rows(), client=Asked, hooks=hooks)
    sampling = {"prompt_tokens": 3, "answers": 2, "answer_tokens": 6, "at_once": 2, "readings": 0}
    assert asked == [(2, 6, sampling)]
    assert algorithm.calls[:2] == [("foreseen", 0), ("build", 0)]
    expected = {"seconds": 6.0, "peak_bytes": 1e6, "sampled_tokens": 12.0}
    assert told == [{**expected, "steps": 6, "scoring_seconds": 0.0}]
    await run.train(Chatter(), chat_rows(), client=Asked, hooks=hooks)  # nobody knows
    assert told[1:] == [None]
    assert len(asked) == 1


async def test_scores_come_before_the_checkpoint_of_the_same_step(run):
    class Killed(Evaluate):
        async def submit(self, step, snapshot):
            raise MemoryError

    with pytest.raises(MemoryError):
        await run.train(Chatter(save_every=2), chat_rows(), evaluate=Killed(4))
    assert run.record.checkpoints.latest(run.record.attempts).step == 2  # 4 is trained and scored again


# --- saving and resuming ---------------------------------------------------------------------------------------------


async def test_checkpoints_come_every_n_steps_and_at_the_end(run):
    await run.train(Chatter(steps=5, save_every=2), chat_rows())
    assert [entry.step for entry in run.record.checkpoints.complete()] == [2, 4, 5]


class Killed(BaseException):
    """The process is gone."""


def killed_after(step, *, before_saving):
    class Listener:
        def evsys_step_finished(self, step):
            if before_saving and step == at:
                raise Killed

        def evsys_checkpoint_saved(self, checkpoint):
            if not before_saving and checkpoint.step == at:
                raise Killed

    at = step
    hooks = HookManager()
    hooks.register(Listener())
    return hooks


@pytest.mark.parametrize("algorithm", [Chatter, Ahead])
@pytest.mark.parametrize(("step", "before_saving"), [(1, True), (3, True), (4, False), (5, True), (6, True)])
async def test_a_resumed_run_equals_one_that_was_never_interrupted_bit_for_bit(
    new_run, algorithm, step, before_saving
):
    options = {"save_every": 2, "batch_size": 7, "steps": 8}
    straight, broken = new_run("straight"), new_run("broken")
    expected = await straight.train(algorithm(**options), chat_rows())
    with pytest.raises(Killed):
        await broken.train(
            algorithm(**options), chat_rows(), hooks=killed_after(step, before_saving=before_saving)
        )
    result = await broken.train(algorithm(**options), chat_rows(), resume=True)
    assert broken.weights() == straight.weights()
    assert broken.metrics() == straight.metrics()
    assert broken.batches() == straight.batches()
    assert (result.steps, result.metrics, result.usage.trained_tokens, result.warnings) == (
        expected.steps,
        expected.metrics,
        expected.usage.trained_tokens,
        expected.warnings,
    )


class Learner(Chatter):
    """Weighs a batch by what `step_metrics` has made of the results so far, which its state holds."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.losses = [0.0]

    async def build_batch(self, step_idx):
        batch = await super().build_batch(step_idx)
        for datum in batch.data:
            datum.loss_inputs["weights"] *= 1 + abs(self.losses[-1])
        return batch

    def step_metrics(self, step_idx, batch, result):
        self.losses.append(result.loss)
        return {"known": float(len(self.losses))}

    def state(self):
        return {"seen": self.seen, "losses": self.losses}

    def load_state(self, state):
        self.seen, self.losses = state["seen"], list(state["losses"])


@pytest.mark.parametrize("step", [2, 3, 5])
async def test_an_algorithm_that_learns_from_results_resumes_exactly(new_run, step):
    options = {"save_every": 2, "steps": 6}
    straight, broken = new_run("straight"), new_run("broken")
    await straight.train(Learner(**options), chat_rows())
    with pytest.raises(Killed):
        await broken.train(Learner(**options), chat_rows(), hooks=killed_after(step, before_saving=True))
    await broken.train(Learner(**options), chat_rows(), resume=True)
    assert broken.weights() == straight.weights()
    assert broken.metrics() == straight.metrics()


@pytest.mark.parametrize("prefetch", [False, True])
async def test_a_checkpoint_keeps_the_state_of_its_step_whatever_is_changed_later(new_run, prefetch):
    class Noted(Learner):
        """Its state is one list that it goes on writing into."""

        def __init__(self, **fields):
            super().__init__(**fields)
            self.built = []

        async def build_batch(self, step_idx):
            self.built.append(step_idx)
            return await super().build_batch(step_idx)

        def state(self):
            return {"built": self.built, **super().state()}

    Noted.prefetch = prefetch
    run = new_run("a")
    await run.train(Noted(save_every=1, steps=4), chat_rows(), client=Slow)
    states = [entry.manifest["loop"]["algorithm"] for entry in run.record.checkpoints.complete()]
    assert [state["built"] for state in states] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
    # What step_metrics made of the step is in it only where no batch is built ahead.
    lengths = [len(state["losses"]) for state in states]
    assert lengths == ([1, 1, 2, 3] if prefetch else [2, 3, 4, 5])


async def test_resuming_a_run_that_was_done_trains_nothing_and_gives_its_result(run):
    first = await run.train(Chatter(), chat_rows())
    again = Chatter()
    second = await run.train(again, chat_rows(), resume=True)
    assert again.calls == []
    assert (second.steps, second.metrics, second.final_checkpoint) == (
        6,
        first.metrics,
        first.final_checkpoint,
    )


async def test_a_checkpoint_says_that_somebody_had_asked_for_a_stop_and_may_be_gone_on_from(run):
    class Stops:
        def evsys_step_finished(self, ctx, step):
            if step == 3:
                ctx.request_stop("enough")

    hooks = HookManager()
    hooks.register(Stops())
    first = await run.train(Chatter(), chat_rows(), hooks=hooks)
    saved = run.record.checkpoints.latest(run.record.attempts)
    assert (first.steps, saved.manifest["loop"]["stop"]) == (3, "enough")
    second = await run.train(Chatter(), chat_rows(), resume=True)
    assert (second.steps, second.stop_reason) == (6, None)


async def test_warnings_of_the_interrupted_part_are_not_counted_twice(new_run):
    class Worried(Chatter):
        async def setup(self, ctx):
            await super().setup(ctx)
            self.warn("found at the start")

        def step_metrics(self, step_idx, batch, result):
            self.warn("found at every step")
            return {}

    run = new_run("a")
    with pytest.raises(Killed):
        await run.train(Worried(save_every=2), chat_rows(), hooks=killed_after(3, before_saving=True))
    result = await run.train(Worried(save_every=2), chat_rows(), resume=True)
    assert result.warnings == ("found at the start", "found at every step (6 times)")


async def test_warnings_of_a_batch_built_ahead_count_when_it_is_trained(new_run):
    class Worried(Ahead):
        async def build_batch(self, step_idx):
            self.warn("odd rows")
            return await super().build_batch(step_idx)

    run = new_run("a")
    with pytest.raises(Killed):
        await run.train(
            Worried(save_every=2), chat_rows(), client=Slow, hooks=killed_after(2, before_saving=False)
        )
    result = await run.train(Worried(save_every=2), chat_rows(), client=Slow, resume=True)
    assert result.warnings == ("odd rows (6 times)",)
    stopped = await new_run("b").train(Worried(), chat_rows(), client=Slow, hooks=stopping_at(2))
    assert stopped.warnings == ("odd rows (2 times)",)


async def test_resuming_on_other_rows_is_refused(run):
    await run.train(Chatter(), chat_rows(), max_steps=2)
    with pytest.raises(DataError, match="the rows have changed since step 2"):
        await run.train(Chatter(), Rows(chat_rows()[:-1]), resume=True)


# --- capabilities ----------------------------------------------------------------------------------------------------


async def test_capabilities_come_from_the_client_else_from_the_configured_backend_else_nothing_is_assumed(
    run,
):
    class Silent:
        """A client that declares nothing."""

        def __init__(self, client):
            self.forward, self.optim_step = client.forward, client.optim_step

    async with run.attempt(chat_rows()) as ctx:
        assert capabilities_of(ctx) == MockBackend.capabilities
    async with run.attempt(chat_rows(), client=Silent) as ctx:
        assert capabilities_of(ctx) == MockBackend.capabilities
    async with run.attempt(chat_rows(), client=Silent, config={}) as ctx:
        assert capabilities_of(ctx) == frozenset()


async def test_a_loop_is_for_one_algorithm_and_a_direct_call_works(run):
    async with run.attempt(chat_rows()) as ctx:
        result = await TrainingLoop(Chatter(steps=1)).run(ctx)
    assert result.steps == 1
