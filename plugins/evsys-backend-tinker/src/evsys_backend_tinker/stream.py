"""The calls on one model: submitted at once, in order, and repeated where the server lost the model.

A server that restarts, or drops a session, forgets everything since the last saved state. All calls since then are kept, so the
model is made again from that state and they are repeated, in their order: nothing is skipped, and nothing is done twice, since
the state holds none of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from evsys.errors import BackendError, EvsysError
from evsys.protocols import Log
from evsys_backend_tinker.daemon import in_daemon_thread
from evsys_backend_tinker.pauses import forward_messages
from evsys_backend_tinker.sdk import as_cause, as_future, error_line, is_lost, is_rejected
from evsys_backend_tinker.waiting import Kind, Waiting, ignore_failure
from evsys_runtime.cancelling import own_task_cancelled

__all__ = ["Call", "Stream"]

_ROWS = 5  # losses in a row, without a call done between them, before a run is given up
_LONGEST_WAIT = 30.0  # seconds between two of them

_NOT_DONE = "it was not done: a call before it was refused"


class _LetGoError(Exception):
    """A call under way was let go, as all are when the model is made again."""


@attrs.define(kw_only=True, eq=False)
class Call:
    """A call on the model.

    Attributes:
        kind: which deadline it has.
        make: calls the client; what it returns is the call's outcome or a future of it.
        convert: the outcome as evsys has it.
        changes: it changes the model, so it is repeated with it.
        steps: optimiser steps that it does.
        again: asked when the model is made again: is a finished call wanted again, as a snapshot in use is?
        blocking: `make` blocks until the outcome is there; calls behind it wait, since its place in the order isn't
            known before.
        what: its name in messages.
    """

    kind: Kind
    make: Callable[[Any], Any]
    convert: Callable[[Any], Any]
    changes: bool = False
    steps: int = 0
    again: Callable[[], bool] = lambda: False
    renew: Callable[[Any], None] = lambda _outcome: None
    blocking: bool = False
    what: str = "call"
    number: int = 0
    done: bool = False
    failed: Exception | None = None
    inflight: asyncio.Future[Any] | None = None
    repeating: asyncio.Future[None] | None = None
    sent: asyncio.Event = attrs.field(factory=asyncio.Event)


@attrs.define(kw_only=True, eq=False)
class Stream:
    """The calls of one run on its model, in order. Used in one event loop.

    Args:
        model: the client's training client.
        reopen: makes the model again from the last state; blocks.
        waiting: waits for outcomes.
        replay_steps: optimiser steps that may be repeated; with more since the last state, a loss ends the run.
        log: is notified of a model that is made again.

    Attributes:
        generation: how often the model was made again.
        steps: optimiser steps submitted and not taken back.
        closed: why no more calls are taken.
    """

    model: Any
    reopen: Callable[[], Any]
    waiting: Waiting
    replay_steps: int
    log: Log | None = None
    generation: int = 0
    steps: int = 0
    closed: str | None = None
    _since: list[Call] = attrs.field(factory=list)
    _count: int = 0
    _unsaved: int = 0
    _forgotten: bool = False
    _barrier: Call | None = None
    _reopening: asyncio.Task[None] | None = None
    _passed: asyncio.Event = attrs.field(factory=asyncio.Event)
    _in_a_row: int = 0
    _suspect: Exception | None = None
    _states: int = 0

    def submit(self, call: Call) -> Awaitable[Any]:
        """Submit a call behind all earlier ones; its outcome is awaited later.

        Raises:
            BackendError: the client is closed.
        """
        if self.closed is not None:
            raise BackendError(self.closed)
        self._count += 1
        call.number = self._count
        self._since.append(call)
        self._unsaved += call.steps
        self.steps += call.steps
        if self._suspect is not None and self._reopening is None:
            self._start_reopening(self._suspect)
        self._send_waiting()
        task = asyncio.ensure_future(self._outcome(call))
        task.add_done_callback(ignore_failure)
        return task

    def saved(self, call: Call) -> None:
        """A state holds what `call` saved: no step before it is ever repeated. A gradient that no step has used
        isn't in it; a snapshot taken since the last step is of the very weights that it holds.
        """
        last = max((one.number for one in self._since if one.steps and one.number < call.number), default=0)
        self._since = [
            one
            for one in self._since
            if one.number > call.number
            or (one.number > last and (one.changes or (one.again() and not self._forgotten)))
        ]
        self._unsaved = sum(one.steps for one in self._since)
        self._forgotten = False
        self._states += 1

    async def renewed(self, generation: int, error: Exception) -> None:
        """See that the model of `generation`, which turned out to be lost, is made again.

        Raises:
            BackendError: it can't be.
        """
        if self.closed is not None:
            raise BackendError(self.closed)
        if not self.is_past(generation):
            self._start_reopening(error)
        await self._wait_for_reopening()

    async def until_past(self, generation: int) -> None:
        """Return once the model of `generation` was made again, or never will be. Calls on its session may never end then."""
        while self.generation == generation and self.closed is None:
            await self._passed.wait()

    def _pass(self) -> None:
        passed, self._passed = self._passed, asyncio.Event()
        passed.set()

    async def _wait_for_reopening(self) -> None:
        """Wait until the model is made again, where it is being made."""
        if self._reopening is None:
            return
        try:
            await asyncio.shield(self._reopening)
        except asyncio.CancelledError:
            if own_task_cancelled() or self.closed is None:
                raise
            raise BackendError(self.closed) from None

    async def made_again(self, call: Call) -> None:
        """Wait until a finished call was made again with the model.

        Raises:
            BackendError: it isn't among those that are.
        """
        if self.closed is not None:
            raise BackendError(self.closed)
        if call not in self._since or call.repeating is None:
            raise BackendError(
                f"{call.what}: the server lost it, and the state of a later step was saved, so it can't be made again"
            )
        await asyncio.shield(call.repeating)

    def close(self, reason: str) -> None:
        """Take no more calls; what is under way is let go."""
        self.closed = reason
        self._pass()
        if self._reopening is not None:
            self._reopening.cancel()
        for call in self._since:
            call.sent.set()
            if call.inflight is not None and not call.inflight.done():
                call.inflight.cancel()

    # --- sending --------------------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        """Send what may be sent, in order: nothing while the model is made again or a blocking call is under way."""
        if self._reopening is not None or self._barrier is not None or self._suspect is not None:
            return
        for call in self._since:
            if call.inflight is None and call.failed is None:
                self._send(call)
                if call.blocking:
                    self._barrier = call
                    return

    def _send(self, call: Call) -> None:
        model = self.model
        try:
            with forward_messages(self.log):
                if call.blocking:
                    call.inflight = asyncio.wrap_future(
                        in_daemon_thread(lambda: call.make(model), f"tinker-{call.kind}")
                    )
                else:
                    call.inflight = as_future(call.make(model))
        except Exception as error:  # the client's own checks of a call, before anything is sent
            call.inflight = asyncio.get_running_loop().create_future()
            call.inflight.set_exception(error)
        call.inflight.add_done_callback(ignore_failure)
        if call.blocking:
            call.inflight.add_done_callback(lambda over: self._lift(call, over))
        call.sent.set()

    def _lift(self, call: Call, over: asyncio.Future[Any]) -> None:
        if self._barrier is call and call.inflight is over:
            self._barrier = None
            if self.closed is None:
                self._send_waiting()

    # --- outcomes -------------------------------------------------------------------------------------------------

    async def _outcome(self, call: Call) -> Any:
        while True:
            await call.sent.wait()
            if call.failed is not None:
                raise call.failed
            if call.inflight is None:
                raise BackendError(self.closed or "the call was let go")
            generation = self.generation
            try:
                found = call.convert(await self._await_call(call, call.inflight))
            except Exception as error:
                await self._wait_for_replay(call, generation, error)
                continue
            if call.failed is not None:  # what it builds on was refused meanwhile
                raise call.failed
            if self.is_past(generation) and call in self._since:  # it is made again, and that is what counts
                await self._wait_for_reopening()
                continue
            call.done, self._in_a_row = True, 0
            self._forget()
            return found

    async def _await_call(self, call: Call, inflight: asyncio.Future[Any]) -> Any:
        try:
            return await self.waiting.for_call(inflight, call.kind)
        except asyncio.CancelledError:
            if own_task_cancelled() or not inflight.cancelled():
                raise
            raise _LetGoError("the call was let go") from None

    def is_past(self, generation: int) -> bool:
        """True if the model of a generation is gone: its session has ended, so the end of its calls means nothing."""
        return self._reopening is not None or self.generation != generation

    async def _wait_for_replay(self, call: Call, generation: int, error: Exception) -> None:
        """Wait where a call failed because its model was lost, so that it is made again; else raise what it ends with."""
        if call.failed is not None:
            raise call.failed
        if not self.is_past(generation) and not _is_loss(error):
            self._refuse(call, error)
            if isinstance(error, EvsysError):
                raise error
            raise _stream_error(call, error) from as_cause(error)
        if call not in self._since and self.closed is None:
            text = f"{call.what}: the server lost its result, though the last state holds what it did"
            raise BackendError(text) from as_cause(error)
        await self.renewed(generation, error)

    def _refuse(self, call: Call, error: Exception) -> None:
        """A call failed. If it was to change the model, those behind it are taken back: nothing is built on a gap.

        The client continues after a refusal, but a server may wait for ever for the refused call's place in the order to be
        filled. So the model is made again before anything else is done with it.
        """
        behind = [one for one in self._since if one.number > call.number]
        taken_back = behind if call.changes else []
        self.steps -= call.steps + sum(one.steps for one in taken_back)
        self._since = [one for one in self._since if one is not call and one not in taken_back]
        self._unsaved = sum(one.steps for one in self._since)
        if self._barrier is call:  # nothing waits for it any more, so neither does what is behind it
            self._barrier = None
        for one in taken_back:
            self._fail(one, BackendError(f"{one.what}: {_NOT_DONE}", refused=error_line(error)))
        if call.changes or is_rejected(error):
            self._suspect = error
            if len(taken_back) < len(behind) and self._reopening is None:
                self._start_reopening(error)
        if self.closed is None:
            self._send_waiting()

    @staticmethod
    def _fail(call: Call, error: Exception) -> None:
        call.failed = error
        call.sent.set()
        if call.inflight is not None and not call.inflight.done():
            call.inflight.cancel()

    def _forget(self) -> None:
        """Let go of what is repeated no more: finished reading calls, and everything where it is too much."""
        if self._unsaved > self.replay_steps:
            self._forgotten = True
        self._since = [
            one
            for one in self._since
            if not one.done or (not self._forgotten and (one.changes or one.again()))
        ]

    # --- making the model again -----------------------------------------------------------------------------------

    def _start_reopening(self, error: Exception) -> None:
        if self.closed is not None:
            return
        self._reopening = asyncio.ensure_future(self._reopen(error))
        self._reopening.add_done_callback(ignore_failure)

    async def _reopen(self, error: Exception) -> None:
        try:
            self._in_a_row += 1
            self._check_possible(error)
            await self._back_off()
            await self._make_model()
        except Exception as failure:
            told = self._give_up(failure, error)
            if told is failure:
                raise
            raise told from as_cause(failure)
        finally:
            self._reopening = None
        self.generation += 1
        self._pass()
        self._suspect, self._barrier = None, None
        self._since = [one for one in self._since if not one.done or one.changes or one.again()]
        repeated = [one for one in self._since if one.done]
        if self.log is not None:
            steps = sum(one.steps for one in repeated)
            self.log.warning("model.reopened", reason=error_line(error), steps_repeated=steps)
        for one in self._since:
            old, one.inflight = one.inflight, None
            one.sent.clear()
            if old is not None and not old.done():
                old.cancel()
        self._send_waiting()
        for one in repeated:
            one.repeating = asyncio.ensure_future(self._wait_for_repetition(one))
            one.repeating.add_done_callback(ignore_failure)

    async def _back_off(self) -> None:
        """Let time pass before the model is made again without a call done since: 1, 2, 4 and 8 seconds.

        Up to half of it is left out by chance, so that runs which lost their models together don't come back together.
        """
        if self._in_a_row > 1:
            seconds = min(2.0 ** (self._in_a_row - 2), _LONGEST_WAIT)
            await self.waiting.clock.sleep(seconds * random.uniform(0.5, 1.0))

    async def _make_model(self) -> None:
        """Make the model from the last state: again where another one was saved meanwhile, of which it knows nothing."""
        states = None
        while states != self._states:
            states = self._states
            await self.waiting.until_there()
            with forward_messages(self.log):
                self.model = await self.waiting.in_thread(self.reopen, "create")

    def _check_possible(self, error: Exception) -> None:
        if self._in_a_row > _ROWS:
            raise BackendError(f"the server lost the model {_ROWS} times in a row: {error_line(error)}")
        if self._forgotten or self._unsaved > self.replay_steps:
            raise BackendError(
                f"the server lost the model, and {self._unsaved} steps since its last state are more than are repeated "
                f"({self.replay_steps}): {error_line(error)}",
                hint="resume the run from its last checkpoint; algorithm.params.save_every saves more often",
            )

    def _give_up(self, failure: Exception, error: Exception) -> BackendError:
        """Mark the model as unusable: all waiting calls fail with the reason."""
        told = (
            failure
            if isinstance(failure, BackendError)
            else BackendError(
                f"the server lost the model ({error_line(error)}), and it can't be made again: {error_line(failure)}"
            )
        )
        self.closed = str(told)
        self._pass()
        for one in self._since:
            self._fail(one, told)
        return told

    async def _wait_for_repetition(self, call: Call) -> None:
        """Wait for a call that is made again; what it gives is known, but it has to be done."""
        await call.sent.wait()
        generation, inflight = self.generation, call.inflight
        if inflight is None or call.failed is not None:
            return
        try:
            outcome = await self._await_call(call, inflight)
        except Exception as error:
            if self.is_past(generation) or self.closed is not None:
                return  # the model was lost again, and the call is made with the next one
            if _is_loss(error):
                await self.renewed(generation, error)
            else:
                self._give_up(error, error)
        else:
            if not self.is_past(generation):
                call.renew(outcome)


def _is_loss(error: Exception) -> bool:
    return isinstance(error, _LetGoError) or (not isinstance(error, EvsysError) and is_lost(error))


def _stream_error(call: Call, error: Exception) -> BackendError:
    if is_rejected(error):
        return BackendError(f"the server refused {call.what}: {error_line(error)}")
    return BackendError(f"{call.what} failed on the server: {error_line(error)}")
