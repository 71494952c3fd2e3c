"""The trials of one run: a thread with an event loop and a `TrialQueue` of its own, since Harbor's bookkeeping, 4
ms a trial, is synchronous and would hold up everything on its loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import attrs

from evsys.errors import PLUGIN_FAILURES, EvsysError
from evsys.types import NoScore, Policy, Rollout, RolloutLimits
from evsys_rollouts_harbor.folders import Folders, forget_loggers
from evsys_rollouts_harbor.gate import Gate
from evsys_rollouts_harbor.live import LiveRollout, live_rollout
from evsys_rollouts_harbor.loops import OtherLoop
from evsys_runtime import Job
from evsys_runtime.evaluation.agents import HarnessAgent

__all__ = ["Retries", "Trials"]

_CLOSE_SECONDS = 10.0
_FORGET_EVERY = 256
_log = logging.getLogger("evsys.rollouts.harbor")


@attrs.frozen(kw_only=True)
class Retries:
    """How often, and after how many seconds, a trial is tried again; the wait doubles, up to a minute."""

    most: int = 0
    wait_seconds: float = 1.0
    more: frozenset[str] = frozenset()


@attrs.define(kw_only=True, eq=False)
class Trials:
    """One run of rollouts. `open` and `close` it on the event loop that wants them; `rollout` runs one job.

    `counted` is called for each trial with its end hook.
    """

    policy: Policy
    limits: RolloutLimits
    folders: Folders
    width: int
    timeout_seconds: float
    retries: Retries
    environment: tuple[str, dict[str, Any]]
    harness: HarnessAgent | None
    counted: Callable[[], None]
    _thread: threading.Thread | None = None
    _there: OtherLoop = attrs.field(init=False)
    _here: OtherLoop = attrs.field(init=False)
    _gate: Gate | None = None
    _queue: Any = None
    _settings: Any = None
    _stopping: asyncio.Event = attrs.field(init=False)
    _ready: Future[asyncio.AbstractEventLoop] = attrs.field(factory=Future)
    _ended: Future[None] = attrs.field(factory=Future)
    _finished: list[str] = attrs.field(factory=list)

    # --- on the event loop that wants rollouts --------------------------------------------------------------------

    async def open(self) -> None:
        """Start the thread, and import Harbor in it."""
        self._here = OtherLoop(asyncio.get_running_loop())
        self._gate = Gate() if self.limits.wave and self.harness is None else None
        self.folders.open()
        self._thread = threading.Thread(target=self._serve, name="evsys-harbor", daemon=True)
        self._thread.start()
        self._there = OtherLoop(await asyncio.shield(asyncio.wrap_future(self._ready)))

    async def close(self) -> None:
        """End what still runs, wait for that, and remove what isn't kept."""
        if self._thread is None:
            return
        try:
            if not self._ended.done():
                await self._stop()
        finally:
            self.folders.close()

    async def _stop(self) -> None:
        """Ask the thread to end, as soon as it has begun, and wait until it has."""
        self._ready.add_done_callback(self._tell_to_stop)
        ended = asyncio.wrap_future(self._ended)
        done, _ = await asyncio.wait([ended], timeout=_CLOSE_SECONDS)
        if not done:
            _log.warning("trials of Harbor's didn't end within %g s; they are left alone", _CLOSE_SECONDS)

    def _tell_to_stop(self, ready: Future[asyncio.AbstractEventLoop]) -> None:
        if ready.exception() is None:
            try:
                ready.result().call_soon_threadsafe(self._stopping.set)
            except RuntimeError:  # its loop is closed, so it has ended
                return

    async def rollout(self, job: Job) -> Rollout:
        """Run one job as a trial. Failures are data."""
        live = LiveRollout(
            job=job,
            policy=self.policy,
            caller=self._here,
            timeout_seconds=self.timeout_seconds,
            trials=self.folders.trials,
            harness=self.harness is not None,
            max_turns=self.limits.max_turns,
            gate=self._gate,
        )
        live.open()
        try:
            async with live.reached(self.harness):
                return await self._there.run(lambda: self._trial(live))
        except EvsysError as exc:  # it has no address
            from evsys_rollouts_harbor.outcomes import with_escaped

            return with_escaped(live, exc)
        finally:
            live.close()

    # --- on Harbor's event loop -------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """The thread's life."""
        try:
            with asyncio.Runner() as runner:
                runner.run(self._wait_for_stop())
        except PLUGIN_FAILURES as exc:
            if not self._ready.done():
                self._ready.set_exception(exc)
            else:
                _log.exception("Harbor's event loop failed")
        finally:
            self._ended.set_result(None)

    async def _wait_for_stop(self) -> None:
        from evsys_rollouts_harbor.api import RetryConfig, TrialEvent, TrialQueue
        from evsys_rollouts_harbor.configs import Settings, environment_config
        from evsys_rollouts_harbor.outcomes import RETRIED

        # Harbor reads a property of its own that it calls deprecated, once a trial.
        warnings.filterwarnings("ignore", message="Task.checksum", category=DeprecationWarning)
        kind, params = self.environment
        self._settings = Settings(
            stub=self.folders.stub,
            trials=self.folders.trials,
            environment=environment_config(kind, params),
            harness=self.harness,
            wave=self.limits.wave,
        )
        self._queue = TrialQueue(
            n_concurrent=self.width,
            retry_config=RetryConfig(
                max_retries=self.retries.most,
                include_exceptions=set(RETRIED | self.retries.more),
                exclude_exceptions=set(),
                wait_multiplier=2.0,
                min_wait_sec=self.retries.wait_seconds,
            ),
            hooks={
                TrialEvent.START: [_careful(self._on_start)],
                TrialEvent.AGENT_START: [_careful(self._agent_starts)],
                TrialEvent.AGENT_END: [_careful(self._agent_ended)],
                TrialEvent.VERIFICATION_START: [self._verifier_starts],
                TrialEvent.END: [_careful(self._trial_ended)],
            },
        )
        self._stopping = asyncio.Event()
        self._ready.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_CLOSE_SECONDS)
        forget_loggers(self._finished)

    async def _trial(self, live: LiveRollout) -> Rollout:
        """One trial, its verdict, and what becomes of its folder."""
        from evsys_rollouts_harbor.outcomes import with_escaped

        failed = True
        try:
            try:
                result = await self._queue.submit(self._settings.trial(live))
                rollout = await self._outcome(live, result)
            except PLUGIN_FAILURES as exc:
                _log.debug("trial %s couldn't be run", live.name, exc_info=exc)
                rollout = with_escaped(live, exc)
            rollout = live.with_judging(rollout)
            failed = rollout.error is not None or isinstance(rollout.score, NoScore)
        finally:
            kept = self.folders.settle(live.name, failed=failed)
            self._forget(live.name)
        if kept is None or self.limits.directory is None:
            return rollout
        files = kept.relative_to(self.limits.directory.parent).as_posix()
        return attrs.evolve(rollout, metadata={**rollout.metadata, "files": files})

    async def _outcome(self, live: LiveRollout, result: Any) -> Rollout:
        from evsys_rollouts_harbor.outcomes import is_kept, with_result

        # Harbor 0.25 asks no verifier about an agent that ended by an overflow.
        unasked = live.score is None and live.task.verifier is not None and not result.step_results
        if live.harness and unasked and is_kept(result):
            await live.judge()
        return with_result(live, result)

    def _forget(self, name: str) -> None:
        self._finished.append(name)
        if len(self._finished) >= _FORGET_EVERY:
            forget_loggers(self._finished)
            self._finished.clear()

    # --- hooks: whatever one raises would end the trial, or all of them --------------------------------------------

    def _on_start(self, event: Any) -> None:
        live_rollout(self.folders.trials / event.config.trial_name).begin(event.result)

    def _agent_starts(self, event: Any) -> None:
        """Another step of a task may begin where the verifier of the one before was."""
        sandbox = live_rollout(self.folders.trials / event.config.trial_name).sandbox
        if sandbox is not None:
            sandbox.begin_acting()

    async def _verifier_starts(self, event: Any) -> None:
        """Keep what the agent left from the verifier. If that fails there is no reward, which a failing hook means here."""
        sandbox = live_rollout(self.folders.trials / event.config.trial_name).sandbox
        if sandbox is not None:
            await sandbox.begin_verification()

    def _agent_ended(self, event: Any) -> None:
        """Take token ids out of the result, which would be written one to a line."""
        live = live_rollout(self.folders.trials / event.config.trial_name)
        contexts = [
            event.result.agent_result,
            *(step.agent_result for step in event.result.step_results or []),
        ]
        for context in contexts:
            if context is not None and context.rollout_details:
                live.details += context.rollout_details[:1]
                context.rollout_details = None

    def _trial_ended(self, event: Any) -> None:
        self.counted()


def _careful(hook: Callable[[Any], None]) -> Callable[[Any], Awaitable[None]]:
    """A hook whose failures are logged, and never reach Harbor."""

    async def call(event: Any) -> None:
        try:
            hook(event)
        except Exception:
            _log.exception("a hook of evsys failed in trial %s", event.config.trial_name)

    return call
