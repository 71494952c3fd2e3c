"""The error tree: every failure evsys reports is one of these, attributed once to the boundary it crossed.

Plugin authors raise ordinary exceptions; `boundary` turns them into the class of the boundary they crossed.
Every class is picklable, so errors travel between processes and into records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, ClassVar

import attrs

__all__ = [
    "PLUGIN_FAILURES",
    "AlgorithmError",
    "BackendError",
    "BudgetExceeded",
    "ConfigError",
    "DataError",
    "DeployError",
    "EvaluationError",
    "EvsysError",
    "LaunchError",
    "PluginConflictError",
    "PluginContractError",
    "PluginError",
    "PluginIncompatibleError",
    "PluginLoadError",
    "PluginNotFoundError",
    "Problem",
    "RolloutError",
    "RunError",
    "StoreError",
    "VerifierError",
    "boundary",
]


@attrs.frozen(kw_only=True)
class Problem:
    """One fault of a file or a value.

    `line` and `column` count from 1 and are None where the value has no place in a file.
    """

    path: str
    message: str
    hint: str | None = None
    source: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)
        text = f"{self.path}: {self.message}" if self.path else self.message
        text = f"{place}: {text}" if place else text
        return f"{text}; {self.hint}" if self.hint else text


class EvsysError(Exception):
    """Base of all errors that evsys raises on purpose; `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__.copy(), self.args)


def _rebuild(cls: type[EvsysError], state: dict[str, Any], args: tuple[Any, ...]) -> EvsysError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigError(EvsysError, ValueError):
    """The experiment file or a plugin's parameters are wrong; `problems` lists everything at once."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem] | str, *, hint: str | None = None) -> None:
        if isinstance(problems, str):
            problems = [Problem(path="", message=problems, hint=hint)]
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PluginError(EvsysError):
    """A plugin can't be used."""

    exit_code = 3


class PluginNotFoundError(PluginError, LookupError):
    """No plugin of this kind has this name."""


class PluginConflictError(PluginError):
    """Two distributions offer the same name; the qualified spelling chooses one."""


class PluginLoadError(PluginError, ImportError):
    """A plugin is installed but importing it failed."""


class PluginIncompatibleError(PluginError):
    """A plugin speaks a protocol version that this core doesn't, or was made for another version of evsys."""


class PluginContractError(PluginError, TypeError):
    """A plugin lacks what its kind's protocol asks for, or returned something of the wrong shape."""


class DataError(EvsysError, ValueError):
    """Rows can't be read or used; `source` is the file and `line` the physical line, counted from 1."""

    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        source: str | None = None,
        line: int | None = None,
        hint: str | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message, hint=hint, **facts)
        self.source = source
        self.line = line

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line) if part is not None)
        return f"{place}: {super().__str__()}" if place else super().__str__()


class BudgetExceeded(EvsysError):  # noqa: N818 - a stop, not a fault
    """The experiment's budget is spent; what was trained and scored is kept."""

    exit_code = 5


class RunError(EvsysError):
    """Something failed while running; `boundary` and `plugin` say whose code it was."""

    boundary: ClassVar[str] = "run"


class BackendError(RunError):
    """A backend, training client or sampling client failed."""

    boundary = "backend"


class AlgorithmError(RunError):
    """An algorithm or a loss failed."""

    boundary = "algorithm"


class RolloutError(RunError):
    """An agent, environment or rollout engine failed."""

    boundary = "rollout"


class VerifierError(RunError):
    """A verifier failed."""

    boundary = "verifier"


class EvaluationError(RunError):
    """An evaluation as a whole failed."""

    boundary = "evaluation"


class LaunchError(RunError):
    """A launcher failed, or the process of an arm ended without a result."""

    boundary = "launcher"


class DeployError(RunError):
    """A deployer failed."""

    boundary = "deploy"


class StoreError(EvsysError, OSError):
    """A record or a data store can't be read or written."""


_RUN_ERRORS: list[type[RunError]] = [RunError, *RunError.__subclasses__()]
_BOUNDARIES: dict[str, type[EvsysError]] = {
    **{cls.boundary: cls for cls in _RUN_ERRORS},
    "data": DataError,
    "store": StoreError,
    "plugin": PluginContractError,
    "search": RunError,
    "researcher": RunError,
}


PLUGIN_FAILURES: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""Exceptions from plugin code that are its failure, `sys.exit()` included; cancellation and Ctrl-C are not."""


_entered: ContextVar[tuple[str, str] | None] = ContextVar("evsys_boundary", default=None)


def entered(context: Context) -> tuple[str, str] | None:
    """The boundary and the plugin whose code runs in a context just now, such as that of a task which waits; None outside all."""
    return context.get(_entered)


def stalled_at(
    name: str, plugin: str, message: str, *, run_id: str | None = None, hint: str | None = None
) -> EvsysError:
    """The error of the boundary `name` for code that never came back; `facts["stalled"]` distinguishes it from a
    failure.
    """
    return _BOUNDARIES[name](message, hint=hint, plugin=plugin, run_id=run_id, stalled=True)


@contextmanager
def boundary(name: str, plugin: str, run_id: str | None = None) -> Iterator[None]:
    """Attribute any failure inside to the boundary `name` and the plugin called there.

    An error that is attributed already passes unchanged, so a failure is attributed once.

    Args:
        name: one of run, backend, algorithm, rollout, verifier, evaluation, deploy, data, store, plugin, search,
            researcher.
        plugin: the (qualified) name of the plugin whose code runs inside.
        run_id: the run it happened in, kept as a fact.

    Raises:
        EvsysError: the class of the boundary, with the original exception as its cause.
    """
    outside = _entered.get()
    _entered.set((name, plugin))
    try:
        yield
    except EvsysError:
        raise
    except PLUGIN_FAILURES as exc:
        detail = str(exc) or "no message"
        error = _BOUNDARIES[name](
            f"{name} {plugin!r} failed: {type(exc).__name__}: {detail}", plugin=plugin, run_id=run_id
        )
        raise error from exc
    finally:
        _entered.set(outside)  # not by a token: a generator may be closed in another context
