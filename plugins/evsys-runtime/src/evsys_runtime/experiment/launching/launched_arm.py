"""An arm in a process of its own, as its experiment sees it: submitted, followed by its messages, taken from its record."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from evsys import HookManager
from evsys.errors import EvsysError, LaunchError, StoreError, boundary
from evsys.protocols import Launcher
from evsys.types import ArmResult, EvaluationResult, Job, JobState, RunResult, Status
from evsys_record import slug
from evsys_record.encoding import as_tree, now
from evsys_record.files import write_json
from evsys_record.result_trees import read_as, read_file_as
from evsys_record.run_record import RunRecord
from evsys_runtime.background import in_background
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.evaluation.shared_scores import SharedScores
from evsys_runtime.experiment.budget.lease import lease_facts
from evsys_runtime.experiment.budget.spending import recorded_run_spending
from evsys_runtime.experiment.launching.lost_process import process_lost, record_lost
from evsys_runtime.experiment.launching.messages import JOBS, SPEC, Mailbox, launch_folder
from evsys_runtime.experiment.launching.relay import replay, replay_end
from evsys_runtime.experiment.lineage.restart_point import retreats_of
from evsys_runtime.experiment.state.facts import STORED, hidden_overrides, is_simulated
from evsys_runtime.experiment.state.listeners import display_listeners
from evsys_runtime.experiment.state.secrets import redact_override
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.experiment.state.starting_weights import untrained_key

__all__ = ["HIDDEN_OVERRIDES", "launch_arm"]

HIDDEN_OVERRIDES = "EVSYS_HIDDEN_OVERRIDES"
"""The variable with the `--set` options whose values no file may hold, as a JSON list."""

LOOK_SECONDS = 0.05
"""Time between two looks at a run's messages."""

END_SECONDS = 90.0
"""How long an arm may take to end by itself once it is asked to, before its job is ended."""

RELAUNCHES = 20
"""How often an arm may be preempted, without a checkpoint in between, before it counts as failed."""


async def launch_arm(session: Session, arm: ArmConfig) -> RunResult:
    """Run an arm through the session's launcher. Never raises for a failure of the arm or of its process."""
    launcher = session.launcher
    assert launcher is not None
    launched = _LaunchedArm(session=session, arm=arm, launcher=launcher)
    session.launched.add(launched.run_id)
    try:
        result = await launched.run()
    except EvsysError as error:
        result = launched.record_failure(error)
    finally:
        session.launched.discard(launched.run_id)
        launched.close()
    await replay_end(launched.hooks, result)
    return result.run or RunResult(status=result.status, run_id=result.run_id)


@attrs.define(kw_only=True, eq=False)
class _LaunchedArm:
    """One arm over all its launches; `job` is the id of the present one."""

    session: Session
    arm: ArmConfig
    launcher: Launcher
    hooks: HookManager = attrs.field(init=False)
    started: float = attrs.field(factory=time.monotonic)
    mailbox: Mailbox | None = None
    job: str | None = None
    place: str | None = None
    launch: int = 0
    sent: Mapping[str, Any] | None = None
    making: dict[str, asyncio.Future[EvaluationResult]] = attrs.field(factory=dict)
    tasks: set[asyncio.Task[None]] = attrs.field(factory=set)
    holding: ExitStack | None = None

    @hooks.default
    def _display(self) -> HookManager:
        hooks = display_listeners(self.session)
        if (budget := self.session.budgets.get(self.run_id)) is not None:
            hooks.register(budget, "budget")
        return hooks

    @property
    def run_id(self) -> str:
        return run_id_of(self.arm)

    async def run(self) -> ArmResult:
        """Launch it until it has a result; each launch continues from the checkpoints of the one before."""
        self.session.progress.run(self.run_id).status = "queued"
        lost, at = 0, None
        while True:
            before = self._attempts()
            state = await self._launch()
            result = self._result(after=before)
            if result is not None and not (state.preempted and result.status in ("cancelled", "failed")):
                return self._take(result)
            if not state.preempted:
                raise self._died(state)
            step = self._saved_step()
            lost, at = (lost + 1 if step == at else 1), step
            if lost > RELAUNCHES:
                raise self._died(state)
            self.session.log.warning("run.preempted", run_id=self.run_id, reason=state.cause, step=step)
            self._note("run.preempted", cause=state.cause, place=state.place or self.place)

    async def _launch(self) -> JobState:
        """Launch it once, and follow it to its end."""
        folder, self.launch = await in_background(launch_folder, self.session.record.directory, self.run_id)
        job = self._job(folder)
        write_json(folder / SPEC, self._spec(job))
        self.mailbox = Mailbox(folder, of_arm=False, redactor=self.session.log_settings.redactor)
        self.sent = None
        self._steer()
        try:
            with boundary("launcher", self._kind, self.run_id):
                [self.job] = await self.launcher.submit([job])
            write_json(folder / SPEC, {**self._spec(job), "job": self.job})
            self._note("run.submitted", job=self.job, launch=self.launch)
            return await self._follow()
        except asyncio.CancelledError:
            await self._end(job)
            raise
        finally:
            self._end_tasks()
            self.mailbox.close()
            self.job = None

    def _job(self, folder: Path) -> Job:
        hidden = hidden_overrides(self.session.plan.overrides)
        return Job(
            name=f"{self.session.record.experiment_id}/{self.run_id}/{self.launch}",
            command=(
                sys.executable,
                *("-m", "evsys_runtime.experiment.arm_process"),
                str(folder.absolute()),
            ),
            working_directory=self.session.plan.project_root,
            folder=folder.absolute(),
            environment={HIDDEN_OVERRIDES: json.dumps(hidden)} if hidden else {},
        )

    def _spec(self, job: Job) -> dict[str, Any]:
        session, run_id = self.session, self.run_id
        budget = None
        if session.budget is not None:
            if run_id in session.budgets:
                session.budget.lend(run_id)
            budget = (
                {
                    "lease": lease_facts(session.budget, run_id),
                    "used": session.budget.used(run_id),
                }
                if run_id in session.budgets
                else None
            )
        return {
            "experiment": str(session.record.directory.absolute()),
            "run_id": run_id,
            "identity": self.arm.digest,
            "launch": self.launch,
            "name": job.name,
            "job": None,
            "submitted": now(),
            "project_root": str(session.plan.project_root),
            "overrides": list(map(redact_override, session.plan.overrides)),
            "options": {
                name: getattr(session.options, name) for name in ("dry", "skip_grader_check", "no_cache")
            },
            "scores_outside_harness": session.scores_outside_harness,
            "unpaid": session.unpaid.get(run_id),
            "budget": budget,
            "untrained": {key: as_tree(result) for key, result in self._known_untrained().items()},
        }

    def _known_untrained(self) -> dict[str, EvaluationResult]:
        session = self.session
        keys = [
            untrained_key(self.arm, benchmark, session.plan.registry, session.seeds(self.arm))
            for benchmark in session.benchmarks_of(self.arm)
        ]
        known = {key: session.untrained.known(key) for key in keys}
        return {key: result for key, result in known.items() if result is not None}

    # --- following ----------------------------------------------------------------------------------------------------

    async def _follow(self) -> JobState:
        """Carry out what its messages ask until its job has ended."""
        asked = float("-inf")
        while True:
            await self._receive()
            self._steer()
            if time.monotonic() - asked >= self.launcher.poll_seconds:
                asked = time.monotonic()
                state = await self._state()
                if state is not None and state.state == "ended":
                    await self._receive()  # what it said last
                    return state
            await asyncio.sleep(LOOK_SECONDS)

    async def _state(self) -> JobState | None:
        """The state of the job; None while the launcher can't be reached, which says nothing about the job."""
        assert self.job is not None
        try:
            with boundary("launcher", self._kind, self.run_id):
                state = (await self.launcher.poll([self.job]))[self.job]
        except EvsysError as error:
            self.session.log.warning("launcher.unreachable", run_id=self.run_id, reason=error.message)
            return None
        progress = self.session.progress.run(self.run_id)
        if state.state == "queued":
            progress.status = "queued"
        elif state.state == "running" and progress.status == "queued":
            progress.status = "running"
        if state.place is not None and state.place != self.place:
            self.place = state.place
            self._note("run.placed", place=state.place)
        return state

    async def _receive(self) -> None:
        assert self.mailbox is not None
        for message in self.mailbox.receive():
            await getattr(self, f"_on_{message['message']}")(message)

    async def _on_hook(self, message: Mapping[str, Any]) -> None:
        await replay(self.hooks, message, run_id=self.run_id, arm=self.arm.name, repeat=self.arm.repeat)

    async def _on_event(self, message: Mapping[str, Any]) -> None:
        facts = dict(message["facts"])
        event, attempt = message["event"], message.get("attempt")
        self.session.record.events.append(event, run=message.get("run"), attempt=attempt, **facts)
        progress = self.session.progress.run(self.run_id)
        if event == "phase.changed":
            progress.status, progress.phase = "running", facts["phase"]
        elif event == "run.paused":
            self._hold()
        elif event == "run.unpaused":
            self._release(float(facts["seconds"]))

    async def _on_warning(self, message: Mapping[str, Any]) -> None:
        if message["text"] not in self.session.warnings:
            self.session.warnings.append(message["text"])

    async def _on_stored(self, message: Mapping[str, Any]) -> None:
        record = self.session.record
        record.note(**{STORED: {**(record.facts.get(STORED) or {}), **message["known"]}})

    async def _on_spent(self, message: Mapping[str, Any]) -> None:
        if self.session.budget is not None:
            self.session.budget.take_usage(self.run_id, message["used"])

    async def _on_exhausted(self, message: Mapping[str, Any]) -> None:
        if self.session.budget is not None:
            self.session.budget.suggest(message["limit"])

    async def _on_lease(self, message: Mapping[str, Any]) -> None:
        budget = self.session.budget
        assert budget is not None
        budget.take_usage(self.run_id, message["used"])
        budget.lend(self.run_id)
        self._send("answer", to=message["id"], lease=lease_facts(budget, self.run_id))

    async def _on_score(self, message: Mapping[str, Any]) -> None:
        """It wants a score that another run may be making: wait for that here, or have it made there."""
        task = asyncio.create_task(self._share(message))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _share(self, message: Mapping[str, Any]) -> None:
        table: SharedScores = getattr(self.session, message["table"])
        make = partial(self._made_there, message["id"])
        found = await table.score(message["key"], self.run_id, make)
        if found is not None:
            self._send("answer", to=message["id"], score=as_tree(found))

    async def _made_there(self, number: str) -> EvaluationResult:
        made: asyncio.Future[EvaluationResult] = asyncio.get_running_loop().create_future()
        self.making[number] = made
        self._send("answer", to=number, score=None)
        return await made

    async def _on_made(self, message: Mapping[str, Any]) -> None:
        future = self.making.pop(message["id"], None)
        if future is None or future.done():
            return
        if message["score"] is None:
            future.cancel()  # cut off there: another run may try
        else:
            future.set_result(read_as(EvaluationResult, message["score"]))

    # --- what is asked of it ------------------------------------------------------------------------------------------

    def _steer(self) -> None:
        """Send the requests in force, where they have changed."""
        steering, run_id = self.session.steering, self.run_id
        asked = {
            "paused": steering.pauses(run_id),
            "at_once": steering.at_once,
            "stop": steering.stop_of(run_id),
        }
        if asked != self.sent and (self.sent is not None or any(asked.values())):
            self._send("steer", **asked)
        self.sent = asked

    def _hold(self) -> None:
        if self.holding is None:
            self.holding = ExitStack()
            self.holding.enter_context(self.session.steering.holding(self.run_id))
            self.session.progress.run(self.run_id).status = "paused"
            budget = self.session.budget
            if budget is not None and set(self.session.steering.held) >= self.session.launched:
                budget.pause()

    def _release(self, seconds: float) -> None:
        if self.holding is not None:
            self.holding.close()
            self.holding = None
            self.session.progress.run(self.run_id).resume_after(seconds)
            if self.session.budget is not None:
                self.session.budget.unpause()

    async def _end(self, job: Job) -> None:
        """Have it end, and keep what it recorded; nothing of it is left running afterwards."""
        self._send("end", reason=self.session.why_ended)
        if self.job is None:  # cancelled while it was submitted
            self.job = await self.launcher.find(job.name)
        if self.job is None:
            return
        for seconds, cancel in ((END_SECONDS, None), (END_SECONDS / 6, False), (END_SECONDS / 6, True)):
            if cancel is not None:
                await self.launcher.cancel([self.job], now=cancel)
            try:
                async with asyncio.timeout(seconds):
                    await self._follow()
            except TimeoutError:
                continue
            break
        else:
            self.session.log.warning("run.left_running", run_id=self.run_id, job=self.job)
        result = self._result(after=self.before)
        if result is None:
            result = self._without_result("cancelled", stop_reason=self.session.why_ended)
        self._take(result)

    # --- results ------------------------------------------------------------------------------------------------------

    before: int = 0

    def _attempts(self) -> int:
        record = self.session.record.find_run(self.run_id)
        self.before = 0 if record is None else max((one.n for one in record.attempts), default=0)
        return self.before

    def _saved_step(self) -> int:
        record = self.session.record.find_run(self.run_id)
        saved = None if record is None else record.checkpoints.latest(record.attempts)
        return 0 if saved is None else saved.step

    def _result(self, *, after: int) -> ArmResult | None:
        """The result that the launch wrote."""
        record = self.session.record.find_run(self.run_id)
        tree = None if record is None else record.read_result()
        if record is None or tree is None or int(tree["attempt"]) <= after:
            return None
        return read_file_as(ArmResult, tree, record.directory)

    def _take(self, result: ArmResult) -> ArmResult:
        """Let the experiment have a result, and the other runs the scores that they share."""
        session, arm = self.session, self.arm
        record = session.record.find_run(self.run_id)
        if record is not None and is_simulated(session.plan, arm, record.facts):
            session.simulated.add(arm.run.backend.kind)
        by_name = {benchmark.name: benchmark for benchmark in session.benchmarks_of(arm)}
        for scored in result.evaluations:
            if not scored.fully_scored or scored.benchmark not in by_name or scored.step > 0:
                continue
            if scored.model is not None:
                session.compared.remember(f"{scored.benchmark}@{scored.model}", scored)
            else:
                benchmark = by_name[scored.benchmark]
                key = untrained_key(arm, benchmark, session.plan.registry, session.seeds(arm))
                session.untrained.remember(key, scored)
        session.results[self.run_id] = result
        self._settle(record, result)
        return result

    def _settle(self, record: RunRecord | None, result: ArmResult | None) -> None:
        budget = self.session.budgets.get(self.run_id)
        if budget is None or self.session.budget is None:
            return
        if record is not None and (result is None or result.status in ("failed", "cancelled")):
            try:  # a killed process couldn't say what it spent last
                self.session.budget.take_usage(self.run_id, recorded_run_spending(record))
            except (StoreError, KeyError, TypeError, ValueError) as error:
                self.session.warnings.append(f"what {self.run_id} spent may be more than is counted: {error}")
        budget.close(result, went_back=record is not None and retreats_of(record) > 0)

    def _died(self, state: JobState) -> LaunchError:
        return process_lost(self.run_id, state, self.folder, place=self.place, plugin=self._kind)

    def record_failure(self, error: EvsysError) -> ArmResult:
        """The arm has failed: its process died, or it couldn't be launched."""
        self.session.log.error("run.failed", run_id=self.run_id, reason=error.message, exc_info=error)
        failure = failure_of(error, "launcher")
        self._note("run.failed", boundary=failure.boundary, message=failure.message)
        return self._take(self._without_result("failed", failure=failure))

    def _without_result(self, status: Status, **facts: Any) -> ArmResult:
        seconds = time.monotonic() - self.started
        return record_lost(self.session, self.arm, status, after=self.before, seconds=seconds, **facts)

    # --- what they have in common -------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The folder of the present launch."""
        return self.session.record.directory / JOBS / slug(self.run_id) / str(self.launch)

    @property
    def _kind(self) -> str:
        spec = self.session.plan.experiment.launcher
        return "launcher" if spec is None else spec.kind

    def _send(self, message: str, **facts: Any) -> None:
        assert self.mailbox is not None
        self.mailbox.send(message, **facts)

    def _note(self, event: str, **facts: Any) -> None:
        self.session.record.events.append(event, run=self.run_id, **facts)

    def _end_tasks(self) -> None:
        for task in tuple(self.tasks):
            task.cancel()
        self.making.clear()

    def close(self) -> None:
        """Leave nothing behind."""
        self._end_tasks()
        self._release(0.0)
