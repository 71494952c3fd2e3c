"""Second models of a run, `teacher` and `reference`: made of a model and a backend or a service, and asked for by the algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys import Registry
from evsys.errors import PluginError, Problem
from evsys.optional import SupportsPromptLogprobs, SupportsRoleCheck, declared
from evsys.types import LoraSpec, ModelSpec
from evsys_runtime.config.asked_model import model_spec
from evsys_runtime.config.building import BuildResult, Plugins, complaints
from evsys_runtime.config.model import PluginSpec, RoleConfig
from evsys_runtime.config.sources import weights_problems

__all__ = ["ROLES", "check_role", "role_problems"]

ROLES = ("teacher", "reference")
"""The keys of a run that name one."""


def check_role(plugins: Plugins, role: RoleConfig, path: str, root: Path) -> BuildResult:
    """Build the role's own backend or inference client, None where it runs on the run's backend, and say what is wrong with the
    role by itself.
    """
    problems = list(weights_problems(role.model, f"{path}.model", root))
    if role.model.load_checkpoint_path is not None:
        message = "a model in a role isn't trained, so it has no optimiser state to restore"
        place = f"{path}.model.load_checkpoint_path"
        problems.append(Problem(path=place, message=message, hint="use init_from_checkpoint"))
    if role.model.renderer is not None and role.inference is None:
        problems += plugins.named("renderer", role.model.renderer, f"{path}.model.renderer")
    if role.inference is not None:
        problems += _service_conflicts(role, path)
        asked = plugins.build(
            "inference_client", role.inference.kind, role.inference.params, f"{path}.inference"
        )
        return BuildResult(plugin=asked.plugin, problems=(*problems, *asked.problems))
    if role.backend is None:
        return BuildResult(problems=tuple(problems))
    spec, place = role.backend, f"{path}.backend"
    built = plugins.build("backend", spec.kind, spec.params, place)
    told = [_client_key_problem(problem, spec.kind, place, plugins.registry) for problem in built.problems]
    return BuildResult(plugin=built.plugin, problems=(*problems, *told))


def role_problems(
    kind: str,
    algorithm: Any,
    model: ModelSpec | None,
    backend: tuple[PluginSpec, Any],
    roles: Mapping[str, tuple[RoleConfig, Any]],
) -> Iterable[Problem]:
    """The problems of a run's roles, checked together with its algorithm.

    Args:
        kind: of the algorithm.
        algorithm: as built.
        model: that is trained; None if unknown.
        backend: of the run, with its spec.
        roles: those that the run names, each with its own backend or inference client as built, or None for the
            run's.
    """
    used: Mapping[str, Iterable[str]] = declared(algorithm, "roles", {})
    for name in declared(algorithm, "required_roles", ()):
        if name not in roles:
            message = f"algorithm {kind!r} needs a {name}, and the run names none"
            hint = f"give the run `{name}: {{model: {{name: ...}}}}`"
            yield Problem(path="$.algorithm.kind", message=message, hint=hint)
    known: dict[str, RoleConfig] = {}
    for name, (role, own) in roles.items():
        if name not in used:
            message = f"algorithm {kind!r}, as it is set, uses no {name}"
            hint = "leave it out; of a recipe in stages, name it in those stages that use it"
            yield Problem(path=f"$.{name}", message=message, hint=hint)
            continue
        known[name] = role
        if role.inference is not None:
            yield from _cant_tell(name, role.inference, own, used[name])
            continue
        spec, built = backend if role.backend is None else (role.backend, own)
        yield from _unable(name, role, spec, built, used[name])
    if model is not None and known and isinstance(algorithm, SupportsRoleCheck):
        yield from _algorithm_problems(kind, algorithm, model, known)


def _service_conflicts(role: RoleConfig, path: str) -> Iterable[Problem]:
    """Keys that a service leaves nothing to say."""
    if role.backend is not None:
        message = "'backend' and 'inference' both name a place for the model"
        yield Problem(path=f"{path}.inference", message=message, hint="keep one")
    for name in ("init_from_checkpoint", "renderer"):
        if getattr(role.model, name) is not None:
            message = "a service has its model as it is, so this would be ignored"
            hint = f"leave it out; {path.removeprefix('$.')}.inference.params names the model"
            yield Problem(path=f"{path}.model.{name}", message=message, hint=hint)


def _cant_tell(name: str, spec: PluginSpec, client: Any, needed: Iterable[str]) -> Iterable[Problem]:
    """Requests to a role that a service can't answer, or that its client doesn't support."""
    offered = {"prompt_logprobs"} if isinstance(client, SupportsPromptLogprobs) else set()
    for capability in sorted(set(needed) - offered) if client is not None else ():
        message = f"a {name} needs {capability!r}, which inference client {spec.kind!r} doesn't offer"
        hint = f"name another client, or a backend in {name}.backend"
        yield Problem(path=f"$.{name}.inference.kind", message=message, hint=hint)


def _unable(
    name: str, role: RoleConfig, spec: PluginSpec, backend: Any, needed: Iterable[str]
) -> Iterable[Problem]:
    """The missing capabilities of a role's backend, and its problems with the model."""
    place = f"$.{name}" if role.backend is None else f"$.{name}.backend.kind"
    if backend is None:  # told of already
        return
    offered: frozenset[str] = getattr(backend, "capabilities", frozenset())
    for capability in sorted(needed):
        if capability not in offered:
            message = f"a {name} needs {capability!r}, which backend {spec.kind!r} doesn't offer"
            yield Problem(path=place, message=message, hint=f"name another backend in {name}.backend")
    honours = declared(backend, "honours")
    if honours is not None and role.model.init_from_checkpoint and "init_from_checkpoint" not in honours:
        message = f"backend {spec.kind!r} would ignore it"
        yield Problem(path=f"$.{name}.model.init_from_checkpoint", message=message)
    validate = declared(backend, "validate_model")
    if validate is not None:
        unable = f"backend {spec.kind!r} can't judge the model"
        place = f"$.{name}.model.name"
        yield from complaints(lambda: validate(model_spec(role.model, LoraSpec())), place, unable)


def _algorithm_problems(
    kind: str, algorithm: Any, model: ModelSpec, roles: Mapping[str, RoleConfig]
) -> Iterable[Problem]:
    """The problems of the models according to the algorithm, if it offers a check."""
    specs = {name: model_spec(role.model, model.lora) for name, role in roles.items()}
    first = f"$.{next(iter(specs))}.model.name"
    unable = f"algorithm {kind!r} can't judge the models"
    return complaints(lambda: algorithm.validate_roles(model, specs), first, unable)


def _client_key_problem(problem: Problem, kind: str, place: str, registry: Registry) -> Problem:
    """An inference client isn't a backend, and has a key of its own."""
    if problem.path != f"{place}.kind":
        return problem
    try:
        registry.find("inference_client", kind)
    except PluginError:
        return problem
    hint = f"it is an inference client, which belongs in {place.removeprefix('$.').removesuffix('.backend')}.inference"
    return attrs.evolve(problem, hint=hint)
