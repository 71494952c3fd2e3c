"""Calls on a model that is lost, refuses calls, or answers late: in order, none twice, none left out."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from evsys.errors import BackendError
from evsys_backend_tinker.config import Deadlines
from evsys_backend_tinker.http_json import Answer
from evsys_backend_tinker.stream import Call, Stream
from evsys_backend_tinker.waiting import Waiting
from evsys_runtime.accounting.clock import SystemClock


class Gone(Exception):
    """What the client raises where the server has forgotten something."""

    status_code = 410


class Refused(Exception):
    """What the client raises where the server refuses a call."""

    status_code = 400


class Model:
    """A model that writes down what is done to it; `breaks` maps the number of a call to what it ends with."""

    def __init__(self, done: tuple[str, ...] = (), breaks: dict[int, Exception] | None = None) -> None:
        self.done = list(done)
        self.breaks = breaks or {}
        self.count = 0

    def do(self, what: str) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.count += 1
        error = self.breaks.get(self.count)
        if error is not None:
            future.set_exception(error)
        else:
            self.done.append(what)
            future.set_result(f"{what} is done")
        return _Later(future)


class _Later:
    def __init__(self, future: asyncio.Future) -> None:
        self.inner = future

    def future(self) -> Any:
        import concurrent.futures

        outer: concurrent.futures.Future = concurrent.futures.Future()

        def pass_on(done: asyncio.Future) -> None:
            if done.exception() is not None:
                outer.set_exception(done.exception())
            else:
                outer.set_result(done.result())

        self.inner.add_done_callback(pass_on)
        return outer


class Quick(SystemClock):
    """A clock on which pauses take no time, and are written down."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


class Healthy:
    """A server that answers."""

    base_url = "http://127.0.0.1:1"

    def get(self, path: str, *, seconds: float) -> Answer:
        return Answer(status=200, body=b"{}")


def stream(model: Model, *reopened: Model, replay_steps: int = 10) -> Stream:
    models = iter(reopened)

    def reopen() -> Model:
        found = next(models, None)
        if found is None:
            raise ConnectionError("it is gone for good")
        return found

    return Stream(
        model=model,
        reopen=reopen,
        waiting=Waiting(api=Healthy(), every=0.01, clock=Quick()),
        replay_steps=replay_steps,
    )


def call(what: str, *, steps: int = 0, changes: bool = True, **more: Any) -> Call:
    return Call(
        kind="train",
        make=lambda model: model.do(what),
        convert=str,
        changes=changes,
        steps=steps,
        what=what,
        **more,
    )


def gradient(index: int) -> Call:
    return call(f"gradient {index}")


def optimiser(index: int) -> Call:
    return call(f"step {index}", steps=1)


STEPS = ["gradient 1", "step 1", "gradient 2", "step 2"]


async def trains(made: Stream, first: int = 1, last: int = 2) -> None:
    for index in range(first, last + 1):
        waiting = [made.submit(gradient(index)), made.submit(optimiser(index))]
        assert [await one for one in waiting] == [f"gradient {index} is done", f"step {index} is done"]


def test_calls_are_made_at_once_and_in_order():
    async def run() -> list[str]:
        model = Model()
        made = stream(model)
        waiting = [made.submit(call(what)) for what in STEPS]
        assert model.done == STEPS
        assert [await one for one in waiting] == [f"{what} is done" for what in STEPS]
        return model.done

    assert asyncio.run(run()) == STEPS


@pytest.mark.parametrize("broken", [1, 2, 3, 4])
def test_a_lost_model_gets_every_call_again_exactly_once_and_in_order(broken: int):
    async def run() -> tuple[list[str], int]:
        second = Model()
        made = stream(Model(breaks={broken: Gone()}), second)
        await trains(made)
        await asyncio.sleep(0.01)
        return second.done, made.generation

    assert asyncio.run(run()) == (STEPS, 1)


def test_what_a_state_holds_is_not_done_again():
    async def run() -> list[str]:
        second = Model()
        made = stream(Model(breaks={4: Gone()}), second)
        await trains(made, 1, 1)
        save = call("save", changes=False)
        await made.submit(save)
        made.saved(save)
        await trains(made, 2, 2)
        return second.done

    assert asyncio.run(run()) == ["gradient 2", "step 2"]


def test_a_gradient_that_no_step_has_used_is_not_in_a_state():
    async def run() -> list[str]:
        second = Model()
        made = stream(Model(breaks={5: Gone()}), second)
        await trains(made, 1, 1)
        await made.submit(gradient(2))
        save = call("save", changes=False)
        await made.submit(save)
        made.saved(save)
        assert await made.submit(optimiser(2)) == "step 2 is done"
        return second.done

    assert asyncio.run(run()) == ["gradient 2", "step 2"]


def test_reading_calls_that_are_done_are_not_done_again():
    async def run() -> list[str]:
        second = Model()
        made = stream(Model(breaks={4: Gone()}), second)
        await made.submit(call("look", changes=False))
        await trains(made)
        return second.done

    assert asyncio.run(run()) == STEPS


def test_a_model_that_is_lost_again_while_calls_are_repeated_is_made_once_more():
    async def run() -> tuple[list[str], int]:
        third = Model()
        made = stream(Model(breaks={4: Gone()}), Model(breaks={2: Gone()}), third)
        await trains(made)
        await asyncio.sleep(0.05)
        return third.done, made.generation

    assert asyncio.run(run()) == (STEPS, 2)


def test_a_model_that_is_lost_over_and_over_ends_the_run():
    async def run() -> None:
        lost = [Model(breaks=dict.fromkeys(range(1, 9), Gone())) for _ in range(9)]
        made = stream(lost[0], *lost[1:])
        with pytest.raises(BackendError, match="5 times in a row"):
            await made.submit(gradient(1))
        with pytest.raises(BackendError, match="5 times in a row"):
            made.submit(gradient(2))
        # The first time at once, then longer and longer, with something left out by chance.
        pauses = made.waiting.clock.pauses
        assert len(pauses) == 4
        assert all(most / 2 <= seconds <= most for seconds, most in zip(pauses, (1, 2, 4, 8), strict=True))

    asyncio.run(run())


def test_a_call_that_is_done_between_two_losses_makes_the_next_one_a_first_one():
    async def run() -> list[float]:
        made = stream(Model(breaks={3: Gone()}), Model(breaks={5: Gone()}), Model())
        await trains(made)
        return made.waiting.clock.pauses

    assert asyncio.run(run()) == []


def test_a_model_that_cannot_be_made_again_ends_every_call_with_the_reason():
    async def run() -> None:
        made = stream(Model(breaks={1: Gone()}))
        waiting = [made.submit(gradient(1)), made.submit(optimiser(1))]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert all("it is gone for good" in str(one) for one in found if isinstance(one, Exception))
        assert isinstance(found[0], BackendError)

    asyncio.run(run())


def test_more_steps_than_may_be_repeated_end_the_run_and_say_what_to_do():
    async def run() -> None:
        made = stream(Model(breaks={5: Gone()}), Model(), replay_steps=1)
        await trains(made)
        with pytest.raises(BackendError, match=r"2 steps since its last state.*save_every"):
            await made.submit(gradient(3))

    asyncio.run(run())


def test_what_stands_behind_a_refused_gradient_is_taken_back_and_the_model_made_again_before_the_next_call():
    async def run() -> list[str]:
        second = Model()
        made = stream(Model(breaks={3: Refused("no such token")}), second)
        await trains(made, 1, 1)
        refused, behind = made.submit(gradient(2)), made.submit(optimiser(2))
        with pytest.raises(BackendError, match="refused gradient 2: no such token"):
            await refused
        with pytest.raises(BackendError, match="not done: a call before it was refused"):
            await behind
        await trains(made, 3, 3)
        return second.done

    assert asyncio.run(run()) == ["gradient 1", "step 1", "gradient 3", "step 3"]


def test_a_failed_save_takes_nothing_back():
    async def run() -> list[str]:
        model = Model(breaks={3: RuntimeError("disk full")})
        made = stream(model)
        await trains(made, 1, 1)
        with pytest.raises(BackendError, match="save failed on the server: disk full"):
            await made.submit(call("save", changes=False))
        await trains(made, 2, 2)
        return model.done

    assert asyncio.run(run()) == STEPS


def test_calls_behind_a_blocking_one_wait_for_it():
    async def run() -> list[str]:
        model = Model()
        made = stream(model)
        blocking = Call(
            kind="save", make=lambda one: one.done.append("snapshot"), convert=lambda _: None, blocking=True
        )
        first, second = made.submit(blocking), made.submit(gradient(1))
        assert model.done in ([], ["snapshot"])
        await first
        await second
        return model.done

    assert asyncio.run(run()) == ["snapshot", "gradient 1"]


def test_a_snapshot_in_use_is_taken_again_at_its_place_and_one_that_is_closed_is_not():
    async def run() -> tuple[list[str], list[str]]:
        second, renewed = Model(), []
        made = stream(Model(breaks={6: Gone()}), second)
        await trains(made, 1, 1)
        await made.submit(call("snapshot", changes=False, again=lambda: True, renew=renewed.append))
        await made.submit(call("closed one", changes=False, again=lambda: False))
        await trains(made, 2, 2)
        await asyncio.sleep(0.05)
        return second.done, renewed

    done, renewed = asyncio.run(run())
    assert done == ["gradient 1", "step 1", "snapshot", "gradient 2", "step 2"]
    assert renewed == ["snapshot is done"]


def test_a_snapshot_that_a_later_state_has_passed_is_gone_with_the_server():
    async def run() -> None:
        made = stream(Model(breaks={7: Gone()}), Model())
        await trains(made, 1, 1)
        snapshot = call("snapshot", changes=False, again=lambda: True)
        await made.submit(snapshot)
        await trains(made, 2, 2)
        save = call("save", changes=False)
        await made.submit(save)
        made.saved(save)
        await made.submit(gradient(3))
        with pytest.raises(BackendError, match="snapshot: the server lost it, and the state of a later step"):
            await made.made_again(snapshot)

    asyncio.run(run())


def test_a_snapshot_of_the_weights_that_a_state_holds_is_taken_again_from_it():
    async def run() -> tuple[list[str], list[str]]:
        second, renewed = Model(), []
        made = stream(Model(breaks={6: Gone()}), second)
        await trains(made, 1, 1)
        snapshot = call("snapshot", changes=False, again=lambda: True, renew=renewed.append)
        await made.submit(snapshot)
        await made.submit(call("closed one", changes=False, again=lambda: False))
        save = call("save", changes=False)
        await made.submit(save)
        made.saved(save)
        await trains(made, 2, 2)
        await made.made_again(snapshot)
        return second.done, renewed

    done, renewed = asyncio.run(run())
    assert done == ["snapshot", "gradient 2", "step 2"]
    assert renewed == ["snapshot is done"]


def test_steps_that_were_taken_back_are_not_counted():
    async def run() -> int:
        made = stream(Model(breaks={3: Refused("no")}), Model())
        await trains(made, 1, 1)
        refused, behind = made.submit(gradient(2)), made.submit(optimiser(2))
        await asyncio.gather(refused, behind, return_exceptions=True)
        await trains(made, 3, 3)
        return made.steps

    assert asyncio.run(run()) == 2


def test_a_closed_stream_lets_go_of_what_is_under_way():
    class Slow(Model):
        def do(self, what: str) -> Any:
            return _Later(asyncio.get_running_loop().create_future())

    async def run() -> None:
        made = stream(Slow())
        waiting = made.submit(gradient(1))
        await asyncio.sleep(0)
        made.close("the training client is closed")
        with pytest.raises(BackendError, match="is closed"):
            await waiting
        with pytest.raises(BackendError, match="is closed"):
            made.submit(gradient(2))

    asyncio.run(run())


class InSession(Model):
    """A model whose calls behind a broken one stay under way until its session is ended, and are refused then."""

    def __init__(self, breaks: dict[int, Exception] | None = None) -> None:
        super().__init__(breaks=breaks)
        self.waiting: list[Future] = []

    def do(self, what: str) -> Any:
        future: Future = Future()
        self.count += 1
        if self.waiting or self.count in self.breaks:
            self.waiting.append(future)
            if self.count in self.breaks:
                future.set_exception(self.breaks[self.count])
        else:
            self.done.append(what)
            future.set_result(f"{what} is done")
        return future

    def end(self) -> None:
        for future in self.waiting:
            if not future.done():
                future.set_exception(Refused("the session has ended"))


def in_sessions(*models: InSession) -> tuple[Stream, list[InSession]]:
    """A stream on the first of them, whose session ends when the next one's begins, as a run does it."""
    used = [models[0]]

    def reopen() -> InSession:
        used[-1].end()
        used.append(models[len(used)])
        return used[-1]

    waiting = Waiting(api=Healthy(), every=0.01, clock=Quick())
    return Stream(model=models[0], reopen=reopen, waiting=waiting, replay_steps=10), used


def in_time[T](run: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(20):
            return await run

    return asyncio.run(bounded())


async def pipelined(made: Stream) -> list[Any]:
    """Two steps that are done, and two more that are submitted at once."""
    await trains(made)
    waiting = [made.submit(one) for index in (3, 4) for one in (gradient(index), optimiser(index))]
    return await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("times", [1, 2, 3, 4])
@pytest.mark.parametrize("broken", [1, 2, 5])
def test_a_model_that_is_lost_while_it_is_repeated_is_made_again_as_long_as_that_may_help(
    times: int, broken: int
):
    last = InSession()
    lost = [InSession(breaks={broken: Gone()}) for _ in range(times)]
    made, used = in_sessions(InSession(breaks={5: Gone()}), *lost, last)
    found = in_time(pipelined(made))
    assert found == [f"{what} is done" for what in ("gradient 3", "step 3", "gradient 4", "step 4")]
    assert last.done == ["gradient 1", "step 1", "gradient 2", "step 2"] + [
        "gradient 3",
        "step 3",
        "gradient 4",
        "step 4",
    ]
    assert len(used) == times + 2
    assert made.steps == 4


@pytest.mark.parametrize("broken", [1, 2, 5])
def test_a_model_that_is_lost_for_ever_while_it_is_repeated_ends_every_call_with_the_reason(broken: int):
    lost = [InSession(breaks={broken: Gone("no such model")}) for _ in range(20)]
    made, used = in_sessions(InSession(breaks={5: Gone("no such model")}), *lost)
    found = in_time(pipelined(made))
    assert all(isinstance(one, BackendError) for one in found)
    assert "5 times in a row: no such model" in str(found[0])
    assert len(used) == 6


def test_calls_that_the_client_gives_up_by_itself_are_made_again():
    class Cancelling(InSession):
        def do(self, what: str) -> Any:
            future: Future = Future()
            future.cancel()
            return future

    last = InSession()
    made, _ = in_sessions(Cancelling(), last)
    in_time(trains(made))
    assert last.done == STEPS


def test_what_comes_from_a_model_that_is_being_made_again_does_not_count():
    class Late(InSession):
        def end(self) -> None:
            for index, future in enumerate(self.waiting[1:]):
                future.set_result(f"late {index}")

    last = InSession()
    made, _ = in_sessions(Late(breaks={1: Gone()}), last)
    in_time(trains(made))
    assert last.done == STEPS


def test_a_model_is_made_once_more_where_a_state_was_saved_while_it_was_made():
    reopened: list[Model] = []

    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        first = Model(breaks={4: Gone()})
        made = stream(first)
        save = call("save", changes=False)

        def reopen() -> Model:
            reopened.append(Model())
            if len(reopened) == 1:  # the state is known while the model is made from the one before it
                told = threading.Event()
                loop.call_soon_threadsafe(lambda: (made.saved(save), told.set()))
                assert told.wait(10)
            return reopened[-1]

        made.reopen = reopen
        await trains(made, 1, 1)
        await made.submit(save)
        await trains(made, 2, 2)
        return reopened[-1].done

    assert in_time(run()) == ["gradient 2", "step 2"]
    assert len(reopened) == 2
    assert reopened[0].done == []


def test_calls_behind_a_blocking_one_that_takes_too_long_are_made_without_it():
    over = threading.Event()

    async def run() -> str:
        made = stream(Model())
        made.waiting.deadlines = Deadlines(save=0.05)
        slow = Call(kind="save", make=lambda _: over.wait(30), convert=str, blocking=True, what="snapshot")
        first, behind = made.submit(slow), made.submit(gradient(1))
        with pytest.raises(BackendError, match=r"a call \(save\) within 0.05 s"):
            await first
        return await behind

    try:
        assert in_time(run()) == "gradient 1 is done"
    finally:
        over.set()


def test_a_closed_stream_makes_no_model_again():
    async def run() -> None:
        made, used = in_sessions(InSession(), InSession())
        await trains(made, 1, 1)
        made.close("the training client is closed")
        with pytest.raises(BackendError, match="is closed"):
            await made.renewed(0, Gone())
        assert len(used) == 1

    in_time(run())
