"""A client that takes calls in order gets the next step before the last one is back, and no number changes by it."""

import asyncio

import numpy as np
import pytest
from training_runs import chat_rows

from evsys import HookManager
from evsys.errors import BackendError
from evsys.types import Datum, TrainingBatch
from evsys_runtime.training.algorithm import BaseAlgorithm


class Chatter(BaseAlgorithm):
    """Trains on the text of its rows."""

    def __init__(self, **fields):
        super().__init__(**{"learning_rate": 1e-3, "batch_size": 4, "steps": 6, "save_every": 0, **fields})

    async def build_batch(self, step_idx):
        rows = [self.ctx.data[i] for i in self.take_rows(step_idx)]
        encode = self.ctx.clients.policy.tokenizer.encode
        texts = [np.array(encode(row.messages[0].content)) for row in rows]
        data = [
            Datum(
                tokens=text[:-1],
                loss_inputs={"target_tokens": text[1:], "weights": np.full(len(text) - 1, 1e-2)},
            )
            for text in texts
        ]
        return TrainingBatch(data=data, row_ids=tuple(row.row_id for row in rows))


class Ahead(Chatter):
    prefetch = True


class Queue:
    """A client whose calls are carried out in their order, a while after they were submitted."""

    submits_ahead = True

    def __init__(self, client, calls, breaks=None):
        self._client = client
        self._last = None
        self._breaks = breaks
        self.calls = calls

    def __getattr__(self, name):
        return getattr(self._client, name)

    def _queued(self, name, *arguments):
        self.calls.append(name)
        number, before = self.calls.count(name), self._last

        async def carried_out():
            if before is not None:
                await asyncio.wait({before})
            await asyncio.sleep(0.002)
            if (name, number) == self._breaks:
                raise BackendError("it was refused")
            found = await getattr(self._client, name)(*arguments)
            self.calls.append(f"{name} is done")
            return found

        self._last = asyncio.ensure_future(carried_out())
        self._last.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._last

    def forward_backward(self, *arguments):
        return self._queued("forward_backward", *arguments)

    def optim_step(self, params):
        return self._queued("optim_step", params)

    async def save_state(self, directory):
        self.calls.append("save_state")
        return await self._client.save_state(directory)


class Waits(Queue):
    submits_ahead = False


def queue(kind=Queue, **fields):
    calls = []
    return calls, lambda client: kind(client, calls, **fields)


async def train(run, kind=Queue, algorithm=Ahead, breaks=None, fields=None, **params):
    calls, client = queue(kind, breaks=breaks)
    made = algorithm(**params)
    result = await run.train(made, chat_rows(), client=client, **{"deterministic": False, **(fields or {})})
    return calls, result


async def test_a_step_is_submitted_before_the_one_before_it_is_back(run):
    calls, _ = await train(run)
    submitted = [place for place, call in enumerate(calls) if call == "forward_backward"]
    done = [place for place, call in enumerate(calls) if call == "optim_step is done"]
    assert len(submitted) == len(done) == 6
    assert all(later < earlier for later, earlier in zip(submitted[1:], done, strict=False))
    # One ahead, no more: the third isn't submitted before the first is back.
    assert all(later > earlier for later, earlier in zip(submitted[2:], done, strict=False))


@pytest.mark.parametrize(
    ("kind", "algorithm", "fields"),
    [
        (Waits, Ahead, {}),
        (Queue, Chatter, {}),
        (Queue, Ahead, {"budget": object}),
        (Queue, Ahead, {"deterministic": True}),
    ],
    ids=[
        "the client doesn't say so",
        "batches depend on results",
        "a budget may end it",
        "it stops where any would",
    ],
)
async def test_else_it_waits(run, kind, algorithm, fields):
    class Meter:
        def charge(self, usage, *, steps=0):
            """It never ends."""

    given = {name: Meter() if value is object else value for name, value in fields.items()}
    calls, _ = await train(run, kind, algorithm, fields=given)
    submitted = [place for place, call in enumerate(calls) if call == "forward_backward"]
    done = [place for place, call in enumerate(calls) if call == "optim_step is done"]
    assert all(later > earlier for later, earlier in zip(submitted[1:], done, strict=False))


@pytest.mark.parametrize("save_every", [0, 1, 2, 4])
async def test_numbers_and_checkpoints_are_those_of_a_run_that_waits(new_run, save_every):
    ahead, waits = new_run("ahead"), new_run("waits")
    await train(ahead, save_every=save_every)
    await train(waits, Waits, save_every=save_every)
    assert ahead.metrics() == waits.metrics()
    assert sorted(ahead.batches()) == sorted(waits.batches())
    entries = [
        [entry.step for entry in one.record.checkpoints.complete(one.record.attempts)]
        for one in (ahead, waits)
    ]
    assert entries[0] == entries[1]
    for step in entries[0]:
        assert ahead.weights(step) == waits.weights(step)


class Scores:
    """Wants a score every three steps; keeps what the weights had behind them."""

    pending = ()

    def __init__(self):
        self.versions = []

    def due(self, step):
        return step % 3 == 0 and step > 0

    async def submit(self, step, snapshot):
        self.versions.append((step, snapshot.version))
        await snapshot.close()


async def test_a_score_sees_the_weights_of_its_own_step(run):
    scores = Scores()
    await train(run, fields={"evaluate": scores})
    assert scores.versions == [(3, 3), (6, 6)]


class Measured(Ahead):
    def __init__(self, **fields):
        super().__init__(**fields)
        self.versions = []

    async def measure(self, step, *, last):
        snapshot = await self.ctx.clients.policy.sampling_client()
        self.versions.append((step, snapshot.version))
        await snapshot.close()
        return {}


async def test_a_measurement_sees_the_weights_of_its_own_step(run):
    algorithm = Measured()
    calls, client = queue()
    await run.train(algorithm, chat_rows(), client=client, deterministic=False)
    assert algorithm.versions == [(step, step) for step in range(1, 7)]
    assert calls


@pytest.mark.parametrize(("deterministic", "last"), [(False, 3), (True, 2)])
async def test_a_stop_ends_the_run_behind_what_is_submitted_already(new_run, deterministic, last):
    class Stops:
        def evsys_step_finished(self, ctx, step):
            if step == 2:
                ctx.request_stop("enough")

    def fields():
        hooks = HookManager()
        hooks.register(Stops())
        return {"hooks": hooks, "deterministic": deterministic}

    stopped, short = new_run("stopped"), new_run("short")
    _, result = await train(stopped, fields=fields())
    assert (result.steps, result.stop_reason) == (last, "enough")
    await train(short, Waits, fields={"max_steps": last})
    assert stopped.weights() == short.weights()
    assert stopped.metrics() == short.metrics()


async def test_a_stop_that_is_asked_for_at_a_checkpoint_ends_it_there(run):
    class Stops:
        def evsys_step_finished(self, ctx, step):
            if step == 2:
                ctx.request_stop("enough")

    hooks = HookManager()
    hooks.register(Stops())
    _, result = await train(run, save_every=2, fields={"hooks": hooks})
    assert result.steps == 2


@pytest.mark.parametrize("breaks", [("forward_backward", 3), ("optim_step", 2)])
async def test_a_step_that_fails_ends_the_run_and_leaves_nothing_behind(run, breaks):
    with pytest.raises(BackendError, match="refused"):
        await train(run, breaks=breaks)
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    done = [line["step"] for line in run.record.read_journal() if line["event"] == "done"]
    assert done == list(range(1, breaks[1]))


async def test_a_run_that_is_cut_off_with_a_step_ahead_goes_on_as_if_nothing_had_been(new_run):
    whole, halved = new_run("whole"), new_run("halved")
    await train(whole, save_every=2)
    with pytest.raises(BackendError):
        await train(halved, save_every=2, breaks=("forward_backward", 4))
    await train(halved, save_every=2, fields={"resume": True})
    assert halved.metrics() == whole.metrics()
    assert halved.weights() == whole.weights()
