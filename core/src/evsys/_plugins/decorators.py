"""`@register_<kind>("name")`: how a project's own code becomes a plugin, in the current registry.

Each hands back what it decorates as it is. Their types say what the kind's protocol asks for, so that a type
checker reports a plugin that can't be one where it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evsys._plugins.registry import current_registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import ClassVar, Concatenate, Protocol, SupportsFloat

    from evsys import protocols as p
    from evsys import types as t

    class _Backend(Protocol):
        """A `protocols.Backend` whose capabilities are declared as a ClassVar, which type checkers distinguish from
        a property.
        """

        capabilities: ClassVar[frozenset[str]]

        async def prepare(
            self, model: t.ModelSpec, run_dir: Path, seed: int, restore: t.Checkpoint | None = None
        ) -> p.TrainingClient: ...

        async def teardown(self, client: p.TrainingClient | None) -> None: ...


# Kinds that are one call: a function is a plugin, and so is a class whose objects can be called like it. Further
# arguments are bound from the params (losses, transforms, agents) or asked for by their name (a verifier's `rollout`).
type _Sum = SupportsFloat | tuple[SupportsFloat, Mapping[str, Any]] | t.LossResult
type _Loss = Callable[Concatenate[Sequence[t.Datum], Any, ...], _Sum]
type _Rows = Callable[Concatenate[Iterable[p.Row], ...], Iterable[p.Row]]
type _Judgement = float | t.Score | t.NoScore
type _Verifier = Callable[Concatenate[str, Any, Mapping[str, Any], ...], _Judgement | Awaitable[_Judgement]]
type _AgentFunction = Callable[
    Concatenate[t.HarborTask, p.InferenceClient, Sequence[Any], t.AgentContext, ...],
    Awaitable[t.Rollout | str],
]


def _register[T](kind: str, name: str | None) -> Callable[[T], T]:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"write @register_{kind}() with brackets above {name!r}")

    def register(plugin: T) -> T:
        current_registry().register(kind, name or _own_name(kind, plugin), plugin)
        return plugin

    return register


def _own_name(kind: str, plugin: Any) -> str:
    for name in (getattr(plugin, "name", None), getattr(plugin, "__name__", None)):
        if isinstance(name, str) and name != "<lambda>":
            return name
    raise TypeError(f"{plugin!r} has no name of its own; write register_{kind}(NAME)")


def register_algorithm[T: type[p.Algorithm]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `async train(ctx) -> RunResult`."""
    return _register("algorithm", name)


def register_backend[T: type[p.Backend] | type[_Backend]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `capabilities`, `async prepare(...)` and `async teardown(client)`."""
    return _register("backend", name)


def register_loss[T: _Loss | Callable[..., _Loss]](name: str | None = None) -> Callable[[T], T]:
    """Register a function `(data, logprobs) -> loss`, or a class whose objects are called like that."""
    return _register("loss", name)


def register_transform[T: _Rows | Callable[..., _Rows]](name: str | None = None) -> Callable[[T], T]:
    """Register a function `(rows) -> rows`, or a class whose objects are called like that."""
    return _register("transform", name)


def register_verifier[T: _Verifier | Callable[..., _Verifier]](name: str | None = None) -> Callable[[T], T]:
    """Register a function `(model_output, expected, params[, rollout]) -> reward`, plain or async, or a class whose
    objects are called like that.
    """
    return _register("verifier", name)


def register_metric[T: type[p.Metric] | type[p.RolloutMetric]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `compute(task_rewards) -> float` or `compute_rollouts(task_rollouts) -> float`."""
    return _register("metric", name)


def register_data_store[T: type[p.DataStore]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `async pull(ref) -> rows`."""
    return _register("data_store", name)


def register_log_store[T: type[p.LogStore]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `async write(record)` and `async close()`."""
    return _register("log_store", name)


def register_inference_client[T: type[p.InferenceClient]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `async generate(messages, sampling, *, n, tools) -> completions`."""
    return _register("inference_client", name)


def register_rollout_engine[T: type[p.RolloutEngine]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `run(tasks, policy, limits)`, an async iterator of rollouts."""
    return _register("rollout_engine", name)


def register_environment[T: type[p.Environment]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `async start()` and `async stop()`."""
    return _register("environment", name)


def register_agent[T: type[p.Agent] | _AgentFunction](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `async run(task, model, tools, ctx)`, or a function called like that."""
    return _register("agent", name)


def register_renderer[T: type[p.Renderer]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `render_prompt`, `render_training`, `parse` and `stop_token_ids`."""
    return _register("renderer", name)


def register_callback[T: type[p.Callback]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with any of the hooks as methods."""
    return _register("callback", name)


def register_deployer[T: type[p.Deployer]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `async deploy(checkpoint)`."""
    return _register("deployer", name)


def register_search[T: type[p.Search]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `ask(history) -> arms`."""
    return _register("search", name)


def register_launcher[T: type[p.Launcher]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `async launch(arms)`."""
    return _register("launcher", name)


def register_researcher[T: type[p.Researcher]](name: str | None = None) -> Callable[[T], T]:
    """Register a class with `async propose(state) -> Proposal | Stop`."""
    return _register("researcher", name)


register_verifier_fn = register_verifier
register_inference = register_inference_client
