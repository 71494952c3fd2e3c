"""Who acts in rollouts: the checks of an `agent` block, in a run or in a benchmark entry."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from evsys import Registry
from evsys.errors import PLUGIN_FAILURES, PluginLoadError, Problem
from evsys_runtime.config.building import BuildResult, Plugins
from evsys_runtime.config.model import AgentConfig

__all__ = ["check_agent", "is_harness", "load_object", "quiet_harbor", "split_path"]


def is_harness(found: object) -> bool:
    """True for a class of Harbor's agents. It is recognised by the name of its base, without importing anything."""
    bases = found.__mro__ if isinstance(found, type) else ()
    return any((base.__module__, base.__name__) == ("harbor.agents.base", "BaseAgent") for base in bases)


def quiet_harbor() -> None:
    """Keep Harbor and LiteLLM from calling home when they are imported or used, unless the user said what they should do."""
    os.environ.setdefault("HARBOR_TELEMETRY", "0")
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def split_path(import_path: str) -> tuple[str, str] | None:
    """Module and attribute of `module:attribute`, or of `module.attribute` cut at the last dot; None where it is neither."""
    module, colon, attribute = import_path.partition(":")
    if not colon:
        module, _, attribute = import_path.rpartition(".")
    names = [*module.split("."), *attribute.split(".")]
    return (module, attribute) if all(name.isidentifier() for name in names) else None


def load_object(module: str, attribute: str, *, what: str = "agent") -> Any:
    """Import what an import path names; an attribute may have dots. `what` says in messages what it should be.

    Raises:
        PluginLoadError: the module can't be imported, or has no such attribute.
    """
    path = f"{module}:{attribute}"
    quiet_harbor()
    try:
        found: Any = import_module(module)
    except PLUGIN_FAILURES as exc:
        message = f"{what} {path!r} can't be loaded: {type(exc).__name__}: {exc}"
        raise PluginLoadError(message, plugin=path, cause=str(exc)) from exc
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as exc:
            near = get_close_matches(name, [known for known in dir(found) if not known.startswith("_")], n=1)
            message = f"{what} {path!r} can't be loaded: {getattr(found, '__name__', found)} has no {name!r}"
            hint = f"did you mean {near[0]!r}?" if near else None
            raise PluginLoadError(message, hint=hint, plugin=path, cause=str(exc)) from exc
    return found


def check_agent(plugins: Plugins, agent: AgentConfig, path: str) -> BuildResult:
    """Build a registered agent; one by import path is imported, and its params are checked without making it."""
    if (agent.kind is None) == (agent.import_path is None):
        both = (
            "names both 'kind' and 'import_path'" if agent.kind else "names neither 'kind' nor 'import_path'"
        )
        return BuildResult(
            problems=(Problem(path=path, message=f"the agent {both}", hint="give one of them"),)
        )
    if agent.kind is not None:
        return plugins.build("agent", agent.kind, agent.params, path)
    place, parts = f"{path}.import_path", split_path(str(agent.import_path))
    if parts is None:
        message = f"{agent.import_path!r} is not an import path"
        return BuildResult(problems=(Problem(path=place, message=message, hint="write module:Class"),))
    if (absent := _absent(parts[0])) is not None:
        return BuildResult(problems=(Problem(path=place, message=absent[0], hint=absent[1]),))
    try:
        found = load_object(*parts)
    except PluginLoadError as exc:
        return BuildResult(problems=(Problem(path=place, message=exc.message, hint=exc.hint),))
    return _usable(found, agent, path)


def _absent(module: str) -> tuple[str, str] | None:
    """The problem of a missing module, as against one that fails."""
    try:
        found = find_spec(module)
    except PLUGIN_FAILURES as exc:
        return f"{module!r} can't be looked for: {type(exc).__name__}: {exc}", "correct the path"
    return None if found else (f"there is no module {module!r}", "a project's own agents are under src.")


def _usable(found: Any, agent: AgentConfig, path: str) -> BuildResult:
    """An async function, a class that takes the params and makes objects with an async `run`, or such an object."""
    name = str(agent.import_path)
    is_class = isinstance(found, type)
    run = (
        found
        if callable(found) and not is_class and not hasattr(found, "run")
        else getattr(found, "run", None)
    )
    if run is None or not inspect.iscoroutinefunction(inspect.unwrap(run)):
        message = f"{name!r} is not an agent: it has no async `run`"
        hint = "define `async def run(self, task, model, tools, ctx)`, or name an async function"
        return BuildResult(problems=(Problem(path=f"{path}.import_path", message=message, hint=hint),))
    if not is_class:
        return BuildResult(plugin=found)
    if is_harness(found):  # the engine brings the arguments that are missing
        return BuildResult(
            plugin=found, problems=tuple(_signature_problems(found, agent.params, path, partly=True))
        )
    own = Registry(entry_points=())
    own.register("agent", name, found)
    if own.config_of("agent", name) is not None:
        return Plugins(own).build("agent", name, agent.params, path)
    return BuildResult(plugin=found, problems=tuple(_signature_problems(found, agent.params, path)))


def _signature_problems(
    found: type, params: Mapping[str, Any], path: str, *, partly: bool = False
) -> list[Problem]:
    """The problems of params by the signature of a constructor without a `Config`."""
    try:
        signature = inspect.signature(found)
        (signature.bind_partial if partly else signature.bind)(**params)
    except TypeError as exc:
        return [Problem(path=f"{path}.params", message=f"{found.__qualname__} doesn't take them: {exc}")]
    except ValueError:  # a class that tells no signature
        return []
    return []
