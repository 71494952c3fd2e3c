"""The contract of a callback: its hooks exist, and nothing that it does ends a run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evsys import HookManager, types
from evsys.errors import PluginContractError
from evsys.hookspecs import HOOKS, PROJECT
from evsys.types import (
    ArmResult,
    Checkpoint,
    Conclusion,
    EvaluationResult,
    ExperimentResult,
    Failure,
    Message,
    MetricValue,
    Rollout,
    Round,
    RunResult,
    Score,
    Usage,
)
from evsys_conformance import runs, toy
from evsys_conformance.checks.entry import EntryConformance
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require
from evsys_conformance.running import run

__all__ = ["AmbientConformance", "CallbackConformance", "arguments_of_all_hooks"]


_ENDS = (SystemExit, asyncio.CancelledError, GeneratorExit)
"""Exceptions that end a run or the process if they get through; Ctrl-C is the user's own."""


class _Listening(EntryConformance):
    """Checks of everything that listens."""

    words: ClassVar[Mapping[str, str]] = {
        "mark": "true when it listens to nothing, and its presence alone says something"
    }

    @pytest.fixture
    def listener(self, plugin: Any) -> HookManager:
        """A hook manager with the callback registered; skipped if registering fails."""
        manager = HookManager()
        try:
            manager.register(plugin)
        except PluginContractError as exc:
            pytest.skip(f"after test_hooks_are_real_ones: it can't be registered: {exc}")
        return manager

    @check()
    def test_hooks_are_real_ones(self, plugin: Any) -> None:
        """Each `evsys_*` function is a hook that there is, with arguments that it has."""
        try:
            HookManager().register(plugin)
        except PluginContractError as exc:
            breach(str(exc), wanted=f"any of {', '.join(HOOKS)}")

    @check()
    def test_annotations_are_those_of_the_hooks(self, plugin: Any, home: Path) -> None:
        """An argument annotated with a type of evsys is given one: a type checker can't see that a hook has other arguments."""
        for hook, given in arguments_of_all_hooks(home).items():
            for name, annotation in _annotations(getattr(plugin, hook, None)).items():
                wanted = _evsys_type(annotation)
                if wanted is not None and name in given:
                    require(
                        isinstance(given[name], wanted),
                        f"{hook} annotates `{name}` as {wanted.__name__}",
                        seen=given[name],
                        wanted=f"{type(given[name]).__name__}, which the hook gives",
                    )

    @check(calls=False)
    def test_listens_to_something(self, plugin: Any, facts: Mapping[str, Any]) -> None:
        """It has at least one hook, unless it declares to be a mark: what listens to nothing does nothing, unnoticed."""
        if facts.get("mark"):
            pytest.skip("is a mark: its presence alone says something")
        names = [name for name in dir(plugin) if not name.startswith("__")]
        if any(name.startswith("evsys_") or _is_marked(plugin, name) for name in names):
            return  # test_hooks_are_real_ones looks at these
        near = {
            name: found[0]
            for name in names
            if callable(getattr(plugin, name, None)) and (found := _hooks_like(name))
        }
        breach(
            "it has no hook, so nothing reaches it",
            seen=Words(f"its functions: {', '.join(n for n in names if not n.startswith('_')) or 'none'}"),
            wanted="; ".join(f"{hook} in place of {name}" for name, hook in near.items())
            or f"a method called like a hook ({', '.join(HOOKS)}); or conformance = {{'mark': True}}",
        )

    @check()
    def test_hooks_run_without_failing(self, listener: HookManager, home: Path) -> None:
        """None of its hooks fails during a whole run."""
        try:
            run(_tell_all(listener, home))
        except _ENDS:
            pytest.skip("after test_nothing_that_it_does_ends_a_run: it ends the process")
        require(
            not listener.warnings,
            "its hooks fail during a whole run: " + "; ".join(listener.warnings),
            wanted="no exception: a run continues without it, and counts a warning",
        )

    @check()
    def test_nothing_that_it_does_ends_a_run(self, listener: HookManager, home: Path) -> None:
        """An exception in it is counted and the run continues, so it ends no process and cancels nothing."""
        ended: BaseException | None = None
        try:
            run(_tell_all(listener, home))
        except _ENDS as exc:
            ended = exc
        require(
            ended is None,
            f"it raises {type(ended).__name__}, which ends the run that it listens to",
            seen=ended,
            wanted="ctx.request_stop(reason), which ends a run after its current step",
        )

    @check()
    def test_what_it_hears_is_left_as_it_was(self, listener: HookManager, home: Path) -> None:
        """Listeners share what they hear: what they are given is the same afterwards."""
        told = arguments_of_all_hooks(home)
        before = _argument_texts(told)
        try:
            run(_tell_all(listener, home, told))
        except _ENDS:
            pytest.skip("after test_nothing_that_it_does_ends_a_run: it ends the process")
        for (hook, name), text in _argument_texts(told).items():
            require(
                text == before[hook, name],
                f"it changed `{name}`, which all listeners of {hook} are given",
                seen=told[hook][name],
                wanted="a copy: what is given belongs to all",
            )


class CallbackConformance(_Listening, PluginConformance):
    """Checks of the kind `callback`."""

    kind: ClassVar[str | None] = "callback"


class AmbientConformance(_Listening):
    """Checks of the kind `plugin`: modules of hooks that are always listening."""

    kind: ClassVar[str | None] = "plugin"

    @pytest.fixture
    def plugin(self, loaded: Any) -> Any:
        """The module itself."""
        return loaded


def _is_marked(plugin: Any, name: str) -> bool:
    """True for what `@hookimpl(specname=...)` made a hook, regardless of its name."""
    return bool(getattr(inspect.getattr_static(plugin, name, None), f"{PROJECT}_impl", None))


def _annotations(function: Any) -> Mapping[str, Any]:
    """The annotations of a function as they are written; none of what isn't one."""
    return inspect.get_annotations(function) if inspect.isroutine(function) else {}


def _evsys_type(annotation: Any) -> type | None:
    """The class of `evsys.types` that an annotation names, also as a text such as `types.ArmResult`; None for any other."""
    name = (
        annotation.rpartition(".")[2] if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    )
    found = getattr(types, name, None) if name.isidentifier() else None
    return found if isinstance(found, type) else None


def _hooks_like(name: str) -> list[str]:
    """The hook that a name was meant to be, if any: `on_step_finished`, say, or `evsys_step_finishd`."""
    plain = name.lower().removeprefix("_").removeprefix("on_").removeprefix("evsy_").removeprefix("evsys")
    by_name = {hook.removeprefix("evsys_"): hook for hook in HOOKS}
    return [by_name[found] for found in get_close_matches(plain, by_name, n=1, cutoff=0.7)]


def _argument_texts(told: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """All arguments of all hooks as texts, by which changes are seen."""
    return {
        (hook, name): repr(value) for hook, arguments in told.items() for name, value in arguments.items()
    }


async def _tell_all(
    manager: HookManager, home: Path, told: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    for hook, arguments in (told or arguments_of_all_hooks(home)).items():
        await manager.emit(hook, **arguments)


def arguments_of_all_hooks(home: Path) -> dict[str, dict[str, Any]]:
    """Arguments for every hook, in the order of a run."""
    ctx = runs.context(home, None, toy.rows("chat"))
    evaluation = EvaluationResult(
        benchmark="toy",
        split="val",
        step=0,
        status="completed",
        metrics={"mean_reward": MetricValue(value=0.5, low=0.25, high=0.75, n=4)},
        task_rewards={"t": (0.5,)},
    )
    broken = EvaluationResult(
        benchmark="toy",
        split="val",
        step=2,
        status="failed",
        failure=Failure(boundary="evaluation", message="no model", error_type="RuntimeError"),
    )
    usage = Usage(trained_tokens=10, seconds=0.5)
    arm = ArmResult(
        run_id=ctx.run_id,
        arm=ctx.arm,
        repeat=0,
        seed=1,
        status="completed",
        identity="sha256:0",
        run=RunResult(status="completed", steps=2, run_id=ctx.run_id, usage=usage),
        evaluations=(evaluation, broken),
    )
    conclusion = Conclusion(verdict="INCONCLUSIVE", reason="a rehearsal")
    result = ExperimentResult(
        experiment_id="e",
        name="rehearsal",
        status="completed",
        directory=str(home),
        conclusion=conclusion,
        arms=(arm,),
    )
    answer = Message(role="assistant", content="ok")
    rollout = Rollout(task_id="t", sample_index=0, messages=(answer,), output="ok", score=Score(value=1.0))
    failure = Failure(boundary="backend", message="out of memory", error_type="RuntimeError")
    return {
        "evsys_experiment_started": {"experiment_id": "e", "directory": home, "arms": [ctx.run_id]},
        "evsys_data_prepared": {"ctx": ctx, "rows": 12, "dropped": {"too long": 1}},
        "evsys_run_started": {
            "ctx": ctx,
            "total_steps": 2,
            "estimate": {"seconds": 1.5, "peak_bytes": 1e9},
        },
        "evsys_step_finished": {"ctx": ctx, "step": 1, "metrics": {"loss": 1.5, "tokens": 12.0}},
        "evsys_checkpoint_saved": {"ctx": ctx, "checkpoint": Checkpoint(step=1, directory=home)},
        "evsys_rollouts_finished": {"ctx": ctx, "step": 1, "phase": "training", "rollouts": [rollout]},
        "evsys_evaluation_advanced": {"ctx": ctx, "benchmark": "toy", "step": 0, "done": 1, "total": 4},
        "evsys_evaluation_finished": {"ctx": ctx, "evaluation": evaluation},
        "evsys_run_failed": {"ctx": ctx, "failure": failure},
        "evsys_run_finished": {"ctx": ctx, "result": arm},
        "evsys_experiment_finished": {"result": result},
        "evsys_round_finished": {
            "research_id": "r",
            "directory": home,
            "round": Round(number=1, status="scored", score=0.5),
        },
        "evsys_write_conclusion": {"result": result, "conclusion": conclusion},
    }
