"""The objects of a rollout while its trial runs: those that Harbor, which writes everything to JSON, can't be
given.

They are found again by the name of the trial, which is that of its folder.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import RolloutError
from evsys.types import (
    AgentContext,
    Completion,
    HarborTask,
    Message,
    NoScore,
    Policy,
    Rollout,
    SamplingParams,
    Score,
    Usage,
)
from evsys.types.rollouts import MOST_TURNS
from evsys_rollouts_harbor.addresses import mentions_address, names_no_model
from evsys_rollouts_harbor.bubblewrap import BwrapEnvironment
from evsys_rollouts_harbor.gate import Gate
from evsys_rollouts_harbor.loops import OtherLoop, retrieve
from evsys_rollouts_harbor.trajectories import read_left
from evsys_runtime import Job, RecordingModel
from evsys_runtime.evaluation.agents import HarnessAgent
from evsys_runtime.evaluation.recording import (
    Acted,
    act,
    agent_context,
    bound_model,
    finish_rollout,
    has_address,
    judge_rollout,
    reachable,
)

__all__ = ["CrossingModel", "LiveRollout", "Place", "live_rollout"]

_table: dict[str, LiveRollout] = {}
_numbers = itertools.count()
_process = secrets.token_hex(4)


def live_rollout(folder: Path) -> LiveRollout:
    """The rollout whose trial has this folder, or a folder in it.

    Raises:
        RolloutError: no trial of this process has it.
    """
    found = next((_table[part] for part in reversed(folder.parts) if part in _table), None)
    if found is None:
        raise RolloutError(f"no rollout of this process has the folder {folder}")
    return found


@attrs.define(kw_only=True, eq=False)
class LiveRollout:
    """One rollout, through all attempts at it. All methods but `open` and `close` are called on Harbor's event
    loop.

    `caller` is the loop of the request for rollouts: agents, models and verifiers run there. `acted` is how the
    agent's acting ended, once for each step of the task; `judging` is what all verdicts took, None where no model
    judged. The verifier is asked as soon as the agent has ended: to go there and back again takes longer than most
    verdicts. An agent of Harbor's leaves nothing here: what it did is in `result`, which is Harbor's own and grows,
    in `details`, which were taken out of it, and in files in `folder`. `sandbox` is where it acts if that is one of
    ours.
    """

    job: Job
    policy: Policy
    caller: OtherLoop
    timeout_seconds: float
    trials: Path
    harness: bool = False
    max_turns: int = MOST_TURNS
    gate: Gate | None = None
    name: str = ""
    place: int = 0
    attempts: int = 0
    earlier: Usage = attrs.field(factory=Usage)
    judging: Usage | None = None
    acted: list[Acted] = attrs.field(factory=list)
    score: Score | NoScore | None = None
    result: Any = None
    details: list[Any] = attrs.field(factory=list)
    sandbox: BwrapEnvironment | None = None
    address: Any = None
    model: RecordingModel = attrs.field(init=False)
    _context: AgentContext = attrs.field(init=False)
    _unjudged: Rollout | None = None
    _verdict: asyncio.Task[Rollout] | None = None
    _reach: Callable[[], Awaitable[Any]] | None = None

    @property
    def own_verifier(self) -> bool:
        """True where a verifier of evsys judges, False where the tests of the task's folder do."""
        return self.task.path is None or self.task.verifier is not None

    def open(self) -> None:
        """Enter the table, under a new name."""
        self.place = next(_numbers)
        shown = re.sub(r"[^A-Za-z0-9]+", "-", self.job.task.task_id).strip("-")[:40] or "task"
        self.name = f"{shown}_s{self.job.sample_index}_{_process}-{self.place:x}"
        job = self.job
        self._context = agent_context(self.policy, job.task_index, job.sample_index, max_turns=self.max_turns)
        self.model = bound_model(self.policy, self._context)
        _table[self.name] = self
        if self.gate is not None:
            self.gate.expect(self.place)

    def close(self) -> None:
        """Leave the table."""
        _table.pop(self.name, None)
        if self._verdict is not None:
            self._verdict.cancel()
        if self.gate is not None:
            self.gate.leave(self.place)

    def begin(self, result: Any) -> None:
        """A new attempt: forget what the one before said, but not what it cost."""
        if self.attempts:
            self.earlier = self.rollout().usage
            self.model.restart()
        self.attempts += 1
        self.acted, self.score, self.details, self.result = [], None, [], result
        self._unjudged = self._verdict = None

    @property
    def task(self) -> HarborTask:
        """The task."""
        return self.job.task

    @property
    def folder(self) -> Path:
        """The folder of the trial."""
        return self.trials / self.name

    async def act(self, instruction: str | None, environment: Place | None) -> Acted:
        """Let the policy's agent act, on the caller's loop.

        Args:
            instruction: what Harbor gives the agent to do; None for a task without a folder, which says so itself.
            environment: where it acts.
        """
        task = self.task if instruction is None else attrs.evolve(self.task, instruction=instruction)
        context, model, gate = self._context, self.model, self.gate
        if environment is not None:
            context = attrs.evolve(context, environment=environment)

        async def there() -> Acted:
            if gate is not None:
                await gate.arrive(self.place)
            acted = await act(task, self.policy, model, context, timeout_seconds=self.timeout_seconds)
            self.acted.append(acted)
            self._unjudged = self._finish_rollout(self.acted)
            if self.own_verifier:
                self._verdict = asyncio.ensure_future(self._judge(self._unjudged))
                self._verdict.add_done_callback(retrieve)  # a trial that ends first asks for no verdict
            return acted

        try:
            return await self.caller.run(there)
        except asyncio.CancelledError:  # by Harbor, after the agent's own deadline did nothing
            self.acted.append(Acted(timed_out=True, seconds=self.timeout_seconds))
            self._unjudged = None
            raise

    async def judge(self) -> Score | NoScore:
        """Have the rollout judged, on the caller's loop; where it was already, that verdict."""
        verdict = self._verdict
        if verdict is None:
            rollout = self.rollout()
            whole = await self.caller.run(lambda: self._judge(rollout))
        elif verdict.done():
            whole = verdict.result()
        else:
            whole = await self.caller.run(lambda: _outcome_of(verdict))
        self.score = whole.score
        return whole.score

    async def _judge(self, rollout: Rollout) -> Rollout:
        whole = await judge_rollout(self.task, rollout, self.policy)
        if whole.score.usage is not None:
            self.judging = (self.judging or Usage()) + whole.score.usage
        return whole

    def with_judging(self, rollout: Rollout) -> Rollout:
        """A rollout whose score shows what all verdicts took, those of earlier attempts and of steps included."""
        if self.judging is None:
            return rollout
        return attrs.evolve(rollout, score=attrs.evolve(rollout.score, usage=self.judging))

    def rollout(self) -> Rollout:
        """The rollout as far as it has come, not judged."""
        if self.harness:
            left = read_left(self.folder, _contexts(self.result), self.details)
            spoken = self.model.turns[-1].message.content if self.model.turns else ""
            rollout = self._finish_rollout([_acting_of(self.result, left.output or spoken)])
            complaint = {"complaint": left.complaint} if left.complaint else {}
            usage = rollout.usage if rollout.turns else self._with_earlier(left.usage, rollout.usage.seconds)
            return attrs.evolve(
                rollout,
                messages=left.messages or rollout.messages,
                turns=rollout.turns or left.turns,
                usage=usage,
                metadata={**rollout.metadata, **complaint},
            )
        return self._unjudged or self._finish_rollout(self.acted)

    def _finish_rollout(self, acted: Sequence[Acted]) -> Rollout:
        last = acted[-1] if acted else Acted(said="")
        rollout = finish_rollout(
            self.task,
            self.job.sample_index,
            self.model,
            last.said,
            failure=next((one.failure for one in acted if one.failure is not None), None),
            timed_out=any(one.timed_out for one in acted),
            version=self.policy.version,
        )
        seconds = self.earlier.seconds + sum(one.seconds for one in acted)
        attempts = {"attempts": self.attempts} if self.attempts > 1 else {}
        return attrs.evolve(
            rollout,
            usage=self._with_earlier(rollout.usage, seconds),
            metadata={**rollout.metadata, **attempts},
        )

    def _with_earlier(self, usage: Usage, seconds: float) -> Usage:
        return attrs.evolve(self.earlier + usage, seconds=seconds)

    # --- an address of its own --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def reached(self, harness: HarnessAgent | None) -> AsyncIterator[None]:
        """Let the rollout have an address while the block continues, on the caller's loop.

        `harness` has it from the start if its params ask for it, or if they name no model and the rollout's has an address.
        """
        async with reachable(self.policy, self.model) as self._reach:
            try:
                if harness is not None and (
                    mentions_address(harness.params)
                    or (names_no_model(harness.params) and has_address(self.policy, self.model))
                ):
                    self.address = await self.reach()
                yield
            finally:
                self._reach = None

    async def reach(self) -> Any:
        """The rollout's address, at which the model answers chat completions; called on the caller's loop.

        Raises:
            RolloutError: there is none.
        """
        if self._reach is None:
            raise RolloutError("the rollout is over, and with it its address")
        return await self._reach()


async def _outcome_of(verdict: asyncio.Task[Rollout]) -> Rollout:
    return await verdict


def _contexts(result: Any) -> list[Any]:
    """Harbor's contexts of an agent: one for each step of its task."""
    if result is None:
        return []
    found = [result.agent_result, *(step.agent_result for step in result.step_results or [])]
    return [context for context in found if context is not None]


def _acting_of(result: Any, said: str) -> Acted:
    """How an agent of Harbor's acted, by the clock of its trial."""
    if result is None:
        return Acted(said=said)
    steps = result.step_results or []
    phases = [result.agent_execution, *(step.agent_execution for step in steps)]
    spans = [phase for phase in phases if phase is not None and phase.started_at and phase.finished_at]
    seconds = sum((phase.finished_at - phase.started_at).total_seconds() for phase in spans)
    exceptions = [result.exception_info, *(step.exception_info for step in steps)]
    timed_out = any(exc is not None and exc.exception_type == "AgentTimeoutError" for exc in exceptions)
    return Acted(said=said, timed_out=timed_out, seconds=seconds)


class CrossingModel:
    """The rollout's model client, for code that runs on Harbor's event loop. Requests to it are recorded like all
    others.
    """

    def __init__(self, live: LiveRollout) -> None:
        self._live = live

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams | None = None,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Completion]:
        """As the core protocol `InferenceClient`; without `sampling` as the policy says."""
        model, asked = self._live.model, sampling or self._live.policy.sampling
        return await self._live.caller.run(lambda: model.generate(messages, asked, n=n, tools=tools))


class Place:
    """The agent's environment, for code on the caller's event loop: a Harbor environment that lives on another.

    Args:
        environment: a Harbor environment.
        loop: its event loop.
    """

    def __init__(self, environment: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._environment = environment
        self._there = OtherLoop(loop)

    async def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        """Run a shell command; the result has `stdout`, `stderr` and `return_code`."""
        seconds = None if timeout_seconds is None else max(1, round(timeout_seconds))
        variables = dict(env) if env else None
        return await self._there.run(
            lambda: self._environment.exec(command, cwd=cwd, env=variables, timeout_sec=seconds)
        )

    async def put(self, source: Path, target: str) -> None:
        """Copy a file or what a folder holds to a path inside."""
        whole = await asyncio.to_thread(source.is_dir)
        upload = self._environment.upload_dir if whole else self._environment.upload_file
        await self._there.run(lambda: upload(source, target))

    async def get(self, source: str, target: Path) -> None:
        """Copy a file from inside to a path."""
        await self._there.run(lambda: self._environment.download_file(source, target))
