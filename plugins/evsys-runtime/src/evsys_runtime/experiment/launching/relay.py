"""The course of a run in another process, passed to the listeners of this one: its progress, its budget, its display."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from evsys import HookManager
from evsys.types import ArmResult, EvaluationResult, Failure, RunContext
from evsys_record.encoding import as_tree
from evsys_record.result_trees import read_as

__all__ = ["HookSender", "replay"]

STEP_SECONDS = 0.2
"""Least time between two steps, or two advances of an evaluation, that are sent."""


class HookSender:
    """A listener in the process of a run: sends what a display needs, so not every step, and no reward of any task."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._total: int | None = None
        self._sent = float("-inf")

    def evsys_run_started(
        self, ctx: RunContext, total_steps: int | None, estimate: Mapping[str, float] | None
    ) -> None:
        """Training begins."""
        restored = ctx.checkpoints.restored
        self._total = total_steps
        self._send(
            "hook",
            hook="evsys_run_started",
            from_step=None if restored is None else restored.step,
            facts={
                "total_steps": total_steps,
                "estimate": None if estimate is None else as_tree(dict(estimate)),
            },
        )

    def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        """A step is done."""
        del ctx
        if step == self._total or not step % max(1, (self._total or 10) // 10) or self._due():
            self._send(
                "hook", hook="evsys_step_finished", facts={"step": step, "metrics": as_tree(dict(metrics))}
            )

    def evsys_evaluation_advanced(
        self, ctx: RunContext, benchmark: str, step: int, done: int, total: int
    ) -> None:
        """An evaluation is under way."""
        del ctx
        if done in (0, total) or self._due():
            facts = {"benchmark": benchmark, "step": step, "done": done, "total": total}
            self._send("hook", hook="evsys_evaluation_advanced", facts=facts)

    def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """The metrics of an evaluation."""
        del ctx
        short = attrs.evolve(evaluation, task_rewards={}, clusters={}, copies={}, breakdown={})
        self._send("hook", hook="evsys_evaluation_finished", facts={"evaluation": as_tree(short)})

    def evsys_run_failed(self, ctx: RunContext, failure: Failure) -> None:
        """Why the run failed."""
        del ctx
        self._send("hook", hook="evsys_run_failed", facts={"failure": as_tree(failure)})

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._sent < STEP_SECONDS:
            return False
        self._sent = now
        return True


@attrs.frozen(kw_only=True)
class _Restored:
    step: int


@attrs.frozen(kw_only=True)
class _Checkpoints:
    restored: _Restored | None


@attrs.frozen(kw_only=True)
class _FarRun:
    """The questions of a listener about a run that trains elsewhere."""

    run_id: str
    arm: str
    repeat: int
    checkpoints: _Checkpoints = _Checkpoints(restored=None)


async def replay(
    hooks: HookManager, message: Mapping[str, Any], *, run_id: str, arm: str, repeat: int
) -> None:
    """Call a hook that a `HookSender` sent."""
    facts: dict[str, Any] = dict(message["facts"])
    for name, kind in (("evaluation", EvaluationResult), ("failure", Failure)):
        if name in facts:
            facts[name] = read_as(kind, facts[name])
    if facts.get("metrics") is not None:
        facts["metrics"] = {name: value for name, value in facts["metrics"].items() if value is not None}
    step = message.get("from_step")
    restored = _Checkpoints(restored=None if step is None else _Restored(step=step))
    await hooks.emit(
        message["hook"],
        ctx=_FarRun(run_id=run_id, arm=arm, repeat=repeat, checkpoints=restored),
        **facts,
    )


async def replay_end(hooks: HookManager, result: ArmResult) -> None:
    """Say how a run ended that had its process elsewhere."""
    ctx = _FarRun(run_id=result.run_id, arm=result.arm, repeat=result.repeat)
    await hooks.emit("evsys_run_finished", ctx=ctx, result=result)
