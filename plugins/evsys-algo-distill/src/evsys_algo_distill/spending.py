"""What answers and opinions take: tokens and money, the teacher's apart from the student's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from evsys.types import Usage

if TYPE_CHECKING:
    from evsys.types import RunContext

__all__ = ["Spending"]


class Spending:
    """Counts what was used beside the training, and charges the run's budget.

    Attributes:
        student: what the answers took.
        teacher: what the opinions took.
    """

    def __init__(self) -> None:
        self.student = Usage()
        self.teacher = Usage()

    def add(self, ctx: RunContext, *, student: Usage, teacher: Usage, charged: bool = False) -> None:
        """Count a step's, and charge it, the student's unless that is `charged` already.

        Raises:
            BudgetExceeded: nothing is left.
        """
        self.student += student
        self.teacher += teacher
        if ctx.budget is not None:
            ctx.budget.charge(teacher if charged else student + teacher)

    @property
    def metrics(self) -> dict[str, float]:
        """What the teacher took since the run began."""
        found = {"teacher_tokens_total": float(self.teacher.tokens)}
        if self.teacher.cost_usd is not None:
            found["teacher_cost_usd"] = self.teacher.cost_usd
        return found

    def state(self) -> Mapping[str, Any]:
        """JSON values for a checkpoint."""
        return {"student": attrs.asdict(self.student), "teacher": attrs.asdict(self.teacher)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.student, self.teacher = Usage(**state["student"]), Usage(**state["teacher"])
