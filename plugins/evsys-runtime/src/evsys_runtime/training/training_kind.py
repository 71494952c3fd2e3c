"""The parts that train a run, from its context: their kinds, the backend's capabilities, the client's charges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evsys.optional import declared

if TYPE_CHECKING:
    from evsys.protocols import TrainingClient
    from evsys.types import RunContext

__all__ = ["capabilities_of", "kind_of", "training_cost"]


def capabilities_of(ctx: RunContext) -> frozenset[str]:
    """The capabilities of a run's backend: by its client, else by the registered backend of the run's config.

    Nothing declared means that nothing is taken for granted: custom losses then go in two passes.
    """
    declared = getattr(ctx.clients.policy, "capabilities", None)
    kind = kind_of(ctx, "backend")
    if declared is None and kind is not None:
        from evsys import current_registry

        declared = getattr(current_registry().get("backend", kind), "capabilities", None)
    return frozenset(declared or ())


def training_cost(client: TrainingClient, tokens: int) -> float | None:
    """US dollars of a training: 0 where the client is free, else what it says; None where no one knows."""
    if declared(client, "free", False):
        return 0.0
    cost = declared(client, "training_cost")
    return None if cost is None else cost(tokens)


def kind_of(ctx: RunContext, key: str) -> str | None:
    """The kind of a part of the run, such as its `backend`; None where its config doesn't say."""
    part = ctx.config.get(key)
    found = part.get("kind") if isinstance(part, Mapping) else None
    return found if isinstance(found, str) else None
