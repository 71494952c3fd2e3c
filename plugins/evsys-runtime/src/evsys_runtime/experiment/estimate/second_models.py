"""The cost of the teacher or the reference of a training: nothing if it is free, else that of the same one on
record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from evsys import Registry
from evsys.optional import declared
from evsys.types import RunResult
from evsys_runtime.config.model import RoleConfig, RunConfig
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.roles import ROLES
from evsys_runtime.rendering.policy_client import sampling_cost

__all__ = ["second_models_usd"]

_MANY = 1_000_000  # tokens: a price that isn't 0 is seen


def second_models_usd(
    registry: Registry, run: RunConfig, steps: int | None, like: Callable[[str], Iterable[RunResult]]
) -> dict[str, float | None]:
    """US dollars of each role of one training, None where no one knows.

    Args:
        registry: of the experiment.
        run: whose roles they are.
        steps: that it takes.
        like: earlier runs with the same model in a role, the newest first.
    """
    return {
        name: 0.0 if _free(registry, run, role) else _usage_by_steps(name, steps, like(name))
        for name in ROLES
        if (role := getattr(run, name)) is not None
    }


def _free(registry: Registry, run: RunConfig, role: RoleConfig) -> bool:
    if role.inference is None:
        backend = role.backend or run.backend
        return bool(declared(registry.get("backend", backend.kind), "free", False))
    client = registry.build("inference_client", role.inference.kind, resolve(role.inference.params))
    return sampling_cost(client, _MANY, _MANY) == 0.0


def _usage_by_steps(name: str, steps: int | None, runs: Iterable[RunResult]) -> float | None:
    for run in runs if steps is not None else ():
        took = run.roles.get(name)
        if took is not None and took.cost_usd is not None and not took.without_price and run.steps:
            return took.cost_usd * (steps or 0) / run.steps
    return None
