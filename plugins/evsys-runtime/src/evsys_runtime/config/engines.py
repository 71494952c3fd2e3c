"""Which rollout engine runs a benchmark entry, and whether it can: asked before anything is spent, and when it is bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from evsys.errors import PLUGIN_FAILURES, ConfigError, EvsysError, Problem
from evsys.optional import declared
from evsys.types import HarborTask
from evsys_runtime.config.model import BenchmarkConfig

__all__ = ["auto_engine", "engine_kind", "engine_problems", "harbor_reason"]


def harbor_reason(environment: Any, tasks: Sequence[HarborTask], *, harness: bool) -> str | None:
    """Why rollouts of these tasks can't be run in this process alone; None where they can."""
    if any(task.path is not None for task in tasks):
        return "tasks in folders need it"
    if environment is not None:
        return "an environment needs it"
    return "an agent of Harbor's needs it" if harness else None


def auto_engine(environment: Any, tasks: Sequence[HarborTask], *, harness: bool) -> str:
    """The name of the engine where no one names one: `direct`, or `harbor` for what needs a place to act."""
    return "direct" if harbor_reason(environment, tasks, harness=harness) is None else "harbor"


def engine_kind(entry: BenchmarkConfig, tasks: Sequence[HarborTask], *, harness: bool) -> str:
    """The name of an entry's engine; `auto` is what `auto_engine` says.

    Args:
        entry: the entry.
        tasks: its tasks.
        harness: its agent is one of Harbor's.
    """
    kind = entry.engine_spec.kind
    return kind if kind != "auto" else auto_engine(entry.environment, tasks, harness=harness)


def engine_problems(
    engine: Any, entry: BenchmarkConfig, tasks: Sequence[HarborTask], *, harness: bool, place: str
) -> Iterator[Problem]:
    """The problems of an entry's requests according to its engine.

    An engine may have `check_work(tasks, environment, harness)`: its exception is the problem.
    """
    check = declared(engine, "check_work")
    if not callable(check):
        return
    try:
        check(tasks, entry.environment, harness)
    except ConfigError as exc:
        yield from (attrs.evolve(problem, path=f"{place}.environment.params") for problem in exc.problems)
    except EvsysError as exc:
        yield Problem(path=f"{place}.engine", message=exc.message, hint=exc.hint)
    except PLUGIN_FAILURES as exc:
        kind = getattr(engine, "name", type(engine).__name__)
        yield Problem(path=f"{place}.engine", message=f"engine {kind!r}: {type(exc).__name__}: {exc}")
