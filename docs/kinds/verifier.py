"""A verifier judges a finished rollout: it gets the final answer, the task's expectation and params, and returns a reward.

It is a class or a function, plain or async, and with an argument called `rollout` it gets the whole trajectory. A rollout that
cannot be judged is a `NoScore`, or an exception, and never counts as 0. [Verifiers](../verifiers.md) has the standard ones and the rules.

## In a task

Tasks name their verifier; `jsonl_to_tasks` writes it for files of another shape.

```json
{"task_id": "t1", "instruction": "6 * 7?", "verifier": {"name": "close_to", "expected": 42, "params": {"tolerance": 0.5}}}
```
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from evsys import option, register_verifier
from evsys.types import NoScore


@register_verifier("close_to")
class CloseTo:
    """1.0 for a number within the tolerance."""

    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @attrs.frozen(kw_only=True)
    class Config:
        """Params of `close_to`."""

        tolerance: float = option(1e-6, "Largest difference that is let through.", ge=0)

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance

    def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> float | NoScore:
        try:
            wanted = float(expected)
        except (TypeError, ValueError):
            return NoScore(reason=f"there is no number to compare with: {expected!r}")
        try:
            return float(abs(float(model_output) - wanted) <= self.tolerance)
        except ValueError:
            return 0.0
