"""The values that cross the contract: rows, training, rollouts, results, the run's context. Names resolve lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evsys.types.context import *  # noqa: F403
    from evsys.types.evidence import *  # noqa: F403
    from evsys.types.failures import *  # noqa: F403
    from evsys.types.jobs import *  # noqa: F403
    from evsys.types.research import *  # noqa: F403
    from evsys.types.results import *  # noqa: F403
    from evsys.types.rewards import *  # noqa: F403
    from evsys.types.rollouts import *  # noqa: F403
    from evsys.types.rows import *  # noqa: F403
    from evsys.types.search import *  # noqa: F403
    from evsys.types.selection import *  # noqa: F403
    from evsys.types.training import *  # noqa: F403
else:
    # In this order nothing is imported for a name but what its own module needs, and `rows` and `training`, which all need.
    _HOMES = (
        *("rows", "training", "rewards", "selection", "failures", "evidence"),
        *("rollouts", "results", "context", "search", "research", "jobs"),
    )

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        for home in () if name.startswith("_") else _HOMES:
            module = import_module(f"evsys.types.{home}")
            if name in module.__all__:
                return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module 'evsys.types' has no attribute {name!r}")
