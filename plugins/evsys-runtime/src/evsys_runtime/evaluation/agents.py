"""Agents by name or import path, and plain async functions as agents."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from evsys.errors import (
    ConfigError,
    PluginContractError,
    Problem,
    RolloutError,
    boundary,
)
from evsys_runtime.config.agents import is_harness, load_object, split_path
from evsys_runtime.config.placeholders import resolve

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import Agent, InferenceClient
    from evsys.types import AgentContext, HarborTask, Rollout

__all__ = ["DEFAULT_AGENT", "AgentSpec", "FunctionAgent", "HarnessAgent", "resolve_agent"]

DEFAULT_AGENT = "chat"

_ARGUMENTS = ("task", "model", "tools", "ctx")


class AgentSpec(Protocol):
    """How the experiment file names an agent: a registered `kind`, or an `import_path`; and its `params`."""

    @property
    def kind(self) -> str | None:
        """Name of a registered agent."""

    @property
    def import_path(self) -> str | None:
        """`module:attribute` or `module.attribute`."""

    @property
    def params(self) -> Mapping[str, Any]:
        """Its parameters."""


class FunctionAgent:
    """A plain async function as an agent.

    Args:
        function: takes `task`, `model`, `tools` and `ctx` by these names, or as many of them in this order as it has
            other positional arguments; returns the final text or a `Rollout`.
        params: further keyword arguments of each call.

    Raises:
        PluginContractError: it isn't async, or takes something else.
    """

    def __init__(self, function: Callable[..., Any], params: Mapping[str, Any] | None = None) -> None:
        self.name = getattr(function, "__qualname__", repr(function))
        if not inspect.iscoroutinefunction(inspect.unwrap(function)):
            raise PluginContractError(
                f"agent {self.name!r} is not an async function", hint="define it with `async def`"
            )
        self._function = function
        self._params = dict(params or {})
        self._by_name = self._named_arguments()

    def _named_arguments(self) -> frozenset[str] | None:
        """The arguments passed by name; None where they are passed in order."""
        parameters = inspect.signature(self._function).parameters
        own = [name for name in parameters if name not in self._params]
        if set(own) <= {*_ARGUMENTS}:
            return frozenset(own)
        required = [name for name in own if parameters[name].default is inspect.Parameter.empty]
        if len(required) > len(_ARGUMENTS) or any(name in _ARGUMENTS for name in required):
            raise PluginContractError(
                f"agent {self.name!r} takes {', '.join(required)}",
                hint="its arguments are task, model, tools and ctx, and its params by keyword",
            )
        self._count = len(required)
        return None

    async def run(
        self, task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext
    ) -> Rollout | str:
        """Call the function with what it asks for."""
        values = dict(zip(_ARGUMENTS, (task, model, tools, ctx), strict=True))
        if self._by_name is None:
            said: Rollout | str = await self._function(*list(values.values())[: self._count], **self._params)
        else:
            chosen = {name: value for name, value in values.items() if name in self._by_name}
            said = await self._function(**chosen, **self._params)
        return said


class HarnessAgent:
    """An agent of Harbor's by its import path. The engine `harbor` makes one for each trial; no one else can run it.

    Args:
        import_path: `module:Class`.
        params: what its class is made from, `${NAME}` not put in yet.
    """

    def __init__(self, import_path: str, params: Mapping[str, Any] | None = None) -> None:
        self.name = import_path
        self.import_path = import_path
        self.params = dict(params or {})

    async def run(
        self, task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext
    ) -> Rollout | str:
        """Refuse.

        Raises:
            RolloutError: always.
        """
        raise RolloutError(f"agent {self.name!r} is one of Harbor's", hint="write engine: harbor")


def resolve_agent(spec: AgentSpec | None, registry: Registry, *, path: str = "$") -> Agent:
    """The agent that a spec names; the registered `chat` for None or an empty one.

    Args:
        spec: `kind` is looked up in the registry; `${NAME}` in its params is put in. An `import_path` names a class, built as `Plugin(**params)` like any
            plugin, an async function, an object with an async `run`, or a class of Harbor's agents.
        registry: where `kind` is looked up.
        path: the place of `spec` in its file, under which problems are reported.

    Raises:
        ConfigError: both `kind` and `import_path`, or wrong params.
        PluginError: no such agent, or it can't be loaded or used.
    """
    kind, import_path, params = (
        (spec.kind, spec.import_path, resolve(spec.params)) if spec else (None, None, {})
    )
    if kind is not None and import_path is not None:
        raise ConfigError([Problem(path=path, message="an agent has a `kind` or an `import_path`, not both")])
    if import_path is None:
        name = kind or DEFAULT_AGENT
        plugin = registry.get("agent", name)
        if _is_function(plugin):
            return FunctionAgent(plugin, params)
        return _check_agent(registry.build("agent", name, params, path=f"{path}.params"), name)
    plugin = _load(import_path, path)
    if is_harness(plugin):
        return HarnessAgent(":".join(split_path(import_path) or ()), spec.params if spec else {})
    return _import_agent(plugin, import_path, params, path)


def _import_agent(plugin: Any, import_path: str, params: Mapping[str, Any], path: str) -> Agent:
    if _is_function(plugin):
        return FunctionAgent(plugin, params)
    if isinstance(plugin, type):
        from evsys import Registry

        own = Registry(entry_points=())
        own.register("agent", import_path, plugin)
        has_config = own.config_of("agent", import_path) is not None
        if has_config or not params:
            return _check_agent(own.build("agent", import_path, params, path=f"{path}.params"), import_path)
        with boundary("plugin", import_path):
            return _check_agent(plugin(**params), import_path)
    if params:
        message = f"{import_path} is an object that exists already, so it takes no params"
        raise ConfigError([Problem(path=f"{path}.params", message=message)])
    return _check_agent(plugin, import_path)


def _load(import_path: str, path: str) -> Any:
    """Import `module:attribute`, or `module.attribute` cut at the last dot."""
    parts = split_path(import_path)
    if parts is None:
        message = f"{import_path!r} is not an import path"
        raise ConfigError([Problem(path=f"{path}.import_path", message=message, hint="write module:Class")])
    return load_object(*parts)


def _is_function(plugin: Any) -> bool:
    return callable(plugin) and not isinstance(plugin, type) and not hasattr(plugin, "run")


def _check_agent(agent: Any, name: str) -> Agent:
    """An object with an async `run`.

    Raises:
        PluginContractError: it has none.
    """
    if _is_function(agent):
        return FunctionAgent(agent)
    run = getattr(agent, "run", None)
    if not inspect.iscoroutinefunction(run):
        raise PluginContractError(
            f"agent {name!r} has no async `run`", hint="define `async def run(self, task, model, tools, ctx)`"
        )
    checked: Agent = agent
    return checked
