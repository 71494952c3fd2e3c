"""Arms side by side: tasks of one process, so many at once, begun in the order of the plan and independent of each other."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import attrs

from evsys.errors import StoreError
from evsys.types import ArmResult, RunResult
from evsys_runtime.accounting.breaker import Outages, ServiceDownError, use_outages
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.arm.arm import run_arm
from evsys_runtime.experiment.budget.budget import WAIT, ArmBudget
from evsys_runtime.experiment.launching.launched_arm import launch_arm
from evsys_runtime.experiment.stages.next_stage import skip_reason
from evsys_runtime.experiment.state.arm_sources import next_arms
from evsys_runtime.experiment.state.remaining_steps import steps_left
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.experiment.state.starting_weights import untrained_keys
from evsys_runtime.experiment.supervision.blocking import loop_watched

__all__ = ["DRAIN_SECONDS", "NOTICE_SECONDS", "run_arms"]

DRAIN_SECONDS = 120.0
"""How long cancelled arms may take to end: longer than their scorings and their backend's teardown may."""


NOTICE_SECONDS = 25.0
"""How often a wait for a service is reported."""


async def run_arms(session: Session) -> list[RunResult]:
    """Run every arm of the plan, `concurrent_arms` at once, each in a context of its own.

    An arm that fails is a result and stops no other, unless `fail_fast` is set: then the arms under way are cancelled, which
    their records say, and the others are skipped.

    Returns:
        A result for each arm, in the order of the plan.

    While a service that they need is down, no arm is started.

    Raises:
        ServiceDownError: one stayed down for too long. The arms under way have failed, and their records say so.
        BaseException: this was cancelled, or an arm can't even be recorded. No arm continues after it.
    """

    def put_on_record(words: str) -> None:
        for watch in tuple(session.watched.values()):
            watch.dump(words)

    def tell(words: str) -> None:
        session.warnings.append(words)
        with suppress(StoreError):  # in a thread that has nobody to tell; the run's own next line fails too
            session.log.warning("loop.blocked", what=words)

    seconds = session.plan.experiment.watchdog.floor_seconds / 2
    with loop_watched(seconds, dump=put_on_record, tell=tell), use_outages() as outages:
        return await _Arms(session=session, outages=outages).run()


@attrs.define(kw_only=True, eq=False)
class _Arms:
    session: Session
    outages: Outages
    running: dict[asyncio.Task[RunResult], ArmConfig] = attrs.field(factory=dict)
    ended: dict[str, RunResult] = attrs.field(factory=dict)

    async def run(self) -> list[RunResult]:
        waiting = deque(arm for arm in self.session.plan.arms if run_id_of(arm) not in self.session.results)
        given_up = asyncio.create_task(self.outages.given_up(), name="services that are down")
        try:
            while True:
                self._stop_waiting(waiting)
                added = self._add(waiting)
                down, there = self.outages.are_there, len(waiting)
                if not down:
                    self._start(waiting)
                if there and not waiting and self._has_room:
                    continue  # there may be more to add
                if self.running or (waiting and self.session.stopping is None):
                    await self._some_ended(given_up, down=down)
                elif self.session.steering.paused and self.session.steering.stop is None:
                    await self.session.steering.change()
                elif not added:
                    break
        except BaseException:
            await self._end_running()
            for arm in waiting:
                self._skipped_result(arm, "not started: the experiment ended before its turn")
            raise
        finally:
            given_up.cancel()
        return [
            self.ended.get(run_id_of(arm)) or self._cancelled_result(arm) for arm in self.session.plan.arms
        ]

    @property
    def _has_room(self) -> bool:
        session = self.session
        steering = session.steering
        held = steering.paused or steering.stop is not None
        return session.stopping is None and not held and len(self.running) < session.concurrent_arms

    def _add(self, waiting: deque[ArmConfig]) -> bool:
        """Take in more arms where there is room and none waits; True where there are any."""
        if waiting or not self._has_room:
            return False
        added = next_arms(self.session, len(self.running))
        waiting.extend(added)
        return bool(added)

    def _stop_waiting(self, waiting: deque[ArmConfig]) -> None:
        """The arms that wait and that someone asked to end early never begin."""
        for arm in tuple(waiting):
            reason = self.session.steering.stop_of(run_id_of(arm))
            if reason is not None:
                waiting.remove(arm)
                stopped = RunResult(
                    status="stopped", run_id=run_id_of(arm), stop_reason=f"not started: {reason}"
                )
                self.ended[run_id_of(arm)] = self._unrecorded_result(arm, stopped)
                self.session.log.info("run.not_started", run_id=run_id_of(arm), reason=reason)

    def _start(self, waiting: deque[ArmConfig]) -> None:
        """Begin arms while there is room. A task has a copy of this context: nothing that an arm sets reaches another."""
        session = self.session
        while self._has_room and (arm := self._first_ready(waiting)) is not None:
            if (
                lacking := skip_reason(
                    session.plan, arm, session.results, session.benchmarks, dry=session.options.dry
                )
            ) is not None:
                waiting.remove(arm)
                self.ended[run_id_of(arm)] = self._skipped_result(arm, lacking)
                continue
            why_not = self._admit(arm)
            if why_not is WAIT:
                return
            waiting.remove(arm)
            if why_not is not None and session.plan.experiment.reuse_arms:
                session.unpaid[run_id_of(arm)] = f"not started: {why_not}"  # unless it is on record
            elif why_not is not None:
                stopped = RunResult(
                    status="budget_stopped", run_id=run_id_of(arm), stop_reason=f"not started: {why_not}"
                )
                self.ended[run_id_of(arm)] = self._unrecorded_result(arm, stopped)
                session.log.warning("run.not_started", run_id=run_id_of(arm), reason=why_not)
                continue
            session.untrained.enter(run_id_of(arm), untrained_keys(session, arm))
            begin = run_arm if session.launcher is None else launch_arm
            self.running[asyncio.create_task(begin(session, arm), name=run_id_of(arm))] = arm

    def _first_ready(self, waiting: deque[ArmConfig]) -> ArmConfig | None:
        """The first arm that waits for no other one."""
        return next((arm for arm in waiting if arm.after is None or arm.after in self.session.results), None)

    def _admit(self, arm: ArmConfig) -> object:
        """None where the budget lets an arm start, else why not, or that it has to wait for others to end."""
        session, run_id = self.session, run_id_of(arm)
        if session.budget is None:
            return None
        admitted = session.budget.admit(run_id, steps=steps_left(session, arm))
        if not isinstance(admitted, ArmBudget):
            return admitted
        session.budgets[run_id] = admitted
        return None

    async def _some_ended(self, given_up: asyncio.Task[ServiceDownError], *, down: bool) -> None:
        """Take the results of arms as they end, and with `fail_fast` end all others at the first that failed.

        If a service was `down`, so that no arm was started, it returns too once none is.

        Raises:
            ServiceDownError: a service stays down; so all arms end.
        """
        changed = asyncio.create_task(self.outages.change(before=down))
        steered = asyncio.create_task(self.session.steering.change())
        try:
            if self.running or down or self.session.steering.paused:
                await asyncio.wait(
                    {*self.running, changed, steered, given_up},
                    timeout=NOTICE_SECONDS if down else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            changed.cancel()
            steered.cancel()
        for reason in self.outages.reasons() if down else ():
            self.session.log.warning("service.down", reason=reason, arms_running=len(self.running))
        if given_up.done():
            error = self.session.down = given_up.result()
            raise error
        for task, arm in [(task, arm) for task, arm in self.running.items() if task.done()]:
            del self.running[task]
            self.session.untrained.leave(run_id_of(arm))
            result = self.ended[run_id_of(arm)] = task.result()
            if (
                self.session.options.fail_fast
                and result.status not in ("completed", "stopped")
                and self.session.stopping is None
            ):
                self.session.stopping = f"ended, since {run_id_of(arm)} {result.status}"
                await self._end_running()

    async def _end_running(self) -> None:
        """Cancel what is under way and wait for it: each arm tears its backend down and records how far it came."""
        ending, self.running = self.running, {}
        for task in ending:
            task.cancel()
        if not ending:
            return
        _, left = await asyncio.wait(ending, timeout=DRAIN_SECONDS)
        for task, arm in ending.items():
            if task in left:
                self._leave(arm)
            elif not task.cancelled() and (error := task.exception()) is not None:
                self.session.log.warning(
                    "run.not_recorded", run_id=run_id_of(arm), reason=str(error), exc_info=error
                )

    def _leave(self, arm: ArmConfig) -> None:
        """Continue without an arm that a plugin keeps from ending."""
        reason = f"{self.session.why_ended}, and a plugin didn't let it end within {DRAIN_SECONDS:g} s"
        self.session.log.warning("run.left_running", run_id=run_id_of(arm), reason=reason)
        if (watch := self.session.watched.get(run_id_of(arm))) is not None:
            watch.left_running = True
            watch.seal()
        self._unrecorded_result(arm, RunResult(status="cancelled", run_id=run_id_of(arm), stop_reason=reason))

    def _cancelled_result(self, arm: ArmConfig) -> RunResult:
        """The result of an arm cancelled or never begun."""
        run_id = run_id_of(arm)
        recorded = self.session.results.get(run_id)
        if recorded is not None and recorded.run is not None:
            return recorded.run
        return self._skipped_result(arm, "an earlier arm failed")

    def _skipped_result(self, arm: ArmConfig, reason: str) -> RunResult:
        return self._unrecorded_result(
            arm, RunResult(status="skipped", run_id=run_id_of(arm), stop_reason=reason)
        )

    def _unrecorded_result(self, arm: ArmConfig, result: RunResult) -> RunResult:
        self.session.results[result.run_id] = ArmResult(
            run_id=result.run_id,
            arm=arm.name,
            repeat=arm.repeat,
            purpose=arm.purpose,
            stage=None if arm.stage is None else arm.stage.label,
            seed=self.session.seeds(arm).base_seed,
            status=result.status,
            identity=arm.digest,
            run=result,
        )
        return result
