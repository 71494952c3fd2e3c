"""Online checks: each backend that trains elsewhere is asked whether it can train the model, and nothing is created
there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from evsys import use_registry
from evsys.errors import ConfigError, Problem, boundary
from evsys.optional import declared
from evsys_runtime.config.asked_model import asked_model
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import Plan
from evsys_runtime.experiment.state.roles import roles_of

__all__ = ["ask_backends"]


async def ask_backends(plan: Plan) -> int:
    """Let every backend of a plan that has `preflight` look at what it would train on, each with each model once.

    Returns:
        How many were asked.

    Raises:
        ConfigError: everything that they say is wrong, with the arm that it is in where there are several.
        BackendError: a backend failed to look.
    """
    asked: set[str] = set()
    problems: list[Problem] = []
    with use_registry(plan.registry):
        for arm in plan.looked_at:
            algorithm = _build(plan, "algorithm", arm.run.algorithm.kind, arm.run.algorithm.params)
            own = _build(plan, "backend", arm.run.backend.kind, arm.run.backend.params)
            models = [("$.", arm.run.backend, own, asked_model(arm.run.model, algorithm))]
            for role in roles_of(arm, algorithm, plan.project_root):
                models.append((f"$.{role.name}.", role.backend, role.build(plan.registry), role.model))
            for place, spec, backend, model in models:
                look = declared(backend, "preflight")
                name = json.dumps([spec.kind, spec.params, attrs.asdict(model)], default=str)
                if look is None or name in asked:
                    continue
                asked.add(name)
                try:
                    with boundary("backend", spec.kind):
                        await look(model)
                except ConfigError as error:
                    where = (
                        ""
                        if len({one.name for one in plan.looked_at}) == 1
                        else f" (in the arm {arm.name!r})"
                    )
                    problems += [_place_in_run(one, place, where, plan) for one in error.problems]
    if problems:
        raise ConfigError(problems)
    return len(asked)


def _build(plan: Plan, kind: str, name: str, params: Mapping[str, Any]) -> Any:
    return plan.registry.build(kind, name, resolve(params))


def _place_in_run(problem: Problem, place: str, where: str, plan: Plan) -> Problem:
    path = _place_in_file(problem.path.replace("$.", place, 1), plan)
    return attrs.evolve(problem, path=path, message=problem.message + where)


def _place_in_file(path: str, plan: Plan) -> str:
    """The place in the file of a path in a run, if known."""
    return path.replace("$.", "$.run.", 1) if "run" in plan.document.tree else path
