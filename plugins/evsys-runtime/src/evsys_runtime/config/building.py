"""Plugins that the file names: built as they would be for a run, and what is wrong with them noted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from evsys import Registry
from evsys._plugins.models import is_pydantic
from evsys._plugins.shape import fields_of
from evsys.errors import (
    PLUGIN_FAILURES,
    ConfigError,
    PluginConflictError,
    PluginError,
    PluginNotFoundError,
    Problem,
)
from evsys_runtime.config import paths, placeholders, trees
from evsys_runtime.config.templates import Template

__all__ = ["BuildResult", "Plugins", "complaints", "verifier_params"]


def verifier_params(registry: Registry, name: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The params that a verifier is made from: those of its task if it has a `Config` or is a function, else none.

    It receives them with each call in any case.

    Raises:
        PluginError: there is no such verifier, or it can't be loaded.
    """
    plain = isinstance(registry.get("verifier", name), type) and registry.config_of("verifier", name) is None
    return {} if plain else params


@attrs.define(kw_only=True, eq=False)
class BuildResult:
    """A plugin object, None where it couldn't be built, and the problems of its spec."""

    plugin: Any = None
    problems: tuple[Problem, ...] = ()


@attrs.define(eq=False)
class Plugins:
    """Builds plugins by name. `broken` holds what is wrong with plugins rather than with the file, by message."""

    registry: Registry
    broken: dict[str, PluginError] = attrs.field(factory=dict)
    _templates: dict[tuple[str, str], Template | None] = attrs.field(factory=dict)

    def build(
        self,
        kind: str,
        name: str,
        params: Mapping[str, Any],
        path: str,
        *,
        extra: Mapping[str, Any] | None = None,
    ) -> BuildResult:
        """Build one plugin.

        Args:
            kind: a kind of plugin.
            name: any spelling of its name.
            params: its params as the file has them.
            path: of the spec; problems are at `path.kind` and under `path.params`.
            extra: params that come from elsewhere in the file, used if the plugin takes them.
        """
        inside = f"{path}.params"
        secret = placeholders.mentions(params)
        unset = tuple(_unset(params, inside)) if secret else ()
        try:
            if extra:
                params = {**self._config_params(kind, name, extra), **params}
            if secret:
                plugin = self.registry.build(kind, name, placeholders.resolve(params), path=inside)
            else:
                plugin = self._plain(kind, name, params, inside)
        except ConfigError as exc:
            problems = tuple(self._redacted(problem, params, inside) for problem in exc.problems)
            unset_places = {problem.path for problem in unset}
            return BuildResult(
                problems=(*unset, *(each for each in problems if each.path not in unset_places))
            )
        except PluginError as exc:
            return BuildResult(problems=(*unset, self._build_problem(exc, f"{path}.kind")))
        return BuildResult(plugin=plugin, problems=unset)

    def named(self, kind: str, name: str, path: str) -> tuple[Problem, ...]:
        """The problems of a plugin only named at `path` and built elsewhere."""
        try:
            self.registry.get(kind, name)
        except PluginError as exc:
            return (self._build_problem(exc, path),)
        return ()

    def listens(self, callback: Any, name: str, path: str) -> tuple[Problem, ...]:
        """The problems of the hooks of a callback named at `path`."""
        from evsys import HookManager

        try:
            HookManager().register(callback, name)
        except PluginError as exc:
            return (self._build_problem(exc, path),)
        return ()

    def _plain(self, kind: str, name: str, params: Mapping[str, Any], path: str) -> Any:
        """A plugin whose params are what the file says, the quick way where seen to be right before."""
        template = self._templates.get((kind, name))
        if template is not None and (plugin := template.build(params)) is not None:
            return plugin
        plugin = self.registry.build(kind, name, params, path=path)
        if (kind, name) not in self._templates:
            self._templates[kind, name] = template = Template.of(self.registry, kind, name, plugin)
        if template is not None:
            template.learn(params)
        return plugin

    def _config_params(self, kind: str, name: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Those of some params that the plugin's Config names."""
        config: Any = self.registry.config_of(kind, name)
        if config is None:
            return {}
        pydantic = is_pydantic(config)
        names = set(config.model_fields) if pydantic else {field.key for field in fields_of(config)}
        return {key: value for key, value in extra.items() if key in names}

    def _build_problem(self, exc: PluginError, path: str) -> Problem:
        if not isinstance(exc, PluginNotFoundError | PluginConflictError):
            self.broken[exc.message] = exc
        return Problem(path=path, message=exc.message, hint=exc.hint)

    def _redacted(self, problem: Problem, params: Mapping[str, Any], inside: str) -> Problem:
        """A problem with a value that came from the environment, without that value."""
        if not placeholders.mentions(params):
            return problem
        hint = problem.hint and placeholders.redact(problem.hint, params)
        segments = paths.parse(problem.path)[len(paths.parse(inside)) :]
        value = trees.get(params, segments)
        names = [name for _, name in placeholders.find(value)] if isinstance(value, str) else []
        if names:
            hint = f"the value of {names[0]} is text; it isn't shown here"
        return attrs.evolve(problem, message=placeholders.redact(problem.message, params), hint=hint)


def complaints(look: Callable[[], Iterable[object]], path: str, unable: str) -> list[Problem]:
    """The faults that a plugin's check `look` reports, as problems at `path`; if it fails, that it is `unable` to.

    A `Problem` of its own is where it says, a path in the run.
    """
    try:
        return [one if isinstance(one, Problem) else Problem(path=path, message=str(one)) for one in look()]
    except PLUGIN_FAILURES as exc:
        return [Problem(path=path, message=f"{unable}: {type(exc).__name__}: {exc}")]


def _unset(params: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for place, name in placeholders.find(params, path):
        if name not in os.environ:
            message = f"the environment variable {name} isn't set"
            yield Problem(path=place, message=message, hint=f"export {name}=...")
