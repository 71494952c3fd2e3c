"""What answers and opinions take: tokens and money, the teacher's apart from the student's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from evsys.types import Usage
from evsys_runtime.rendering.policy_client import sampling_cost

if TYPE_CHECKING:
    from evsys.protocols import SamplingClient
    from evsys.types import RunContext

__all__ = ["Spending", "used"]


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


def used(client: SamplingClient, prompt_tokens: int, completion_tokens: int) -> Usage:
    """Tokens with their price, as far as the client knows it."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=sampling_cost(client, prompt_tokens, completion_tokens),
    )
