"""What a second model of a run takes, such as its teacher: counted, charged, kept in checkpoints, and told apart in the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from evsys.types import Usage

if TYPE_CHECKING:
    from evsys.protocols import Budget
    from evsys.types import RunResult

__all__ = ["RoleUsage"]


@attrs.define(kw_only=True, eq=False)
class RoleUsage:
    """The account of one role.

    Attributes:
        role: the role's name, `teacher` or `reference`.
        budget: of the run; None without limits.
        used: what it took since the run began.
    """

    role: str
    budget: Budget | None
    used: Usage = attrs.field(factory=Usage)

    def add(self, took: Usage, *, beside: Usage | None = None) -> None:
        """Count what it took, and charge it together with what was used `beside` it and is counted elsewhere.

        Raises:
            BudgetExceeded: nothing is left.
        """
        self.used += took
        if self.budget is not None:
            self.budget.charge(took if beside is None else took + beside)

    def counted_in(self, result: RunResult) -> RunResult:
        """The result of the training with it."""
        return attrs.evolve(result, usage=result.usage + self.used, roles={self.role: self.used})

    def state(self) -> Mapping[str, Any]:
        """JSON values for a checkpoint."""
        return attrs.asdict(self.used)

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.used = Usage(**state)
