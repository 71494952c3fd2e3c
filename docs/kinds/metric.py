"""A metric makes one number of the rewards of all tasks, or, with `compute_rollouts`, of whole rollouts: tokens, seconds, money.

`direction` says whether more is better. A family such as `best@k` is one class whose `k` is in the name. Intervals come from
evsys, by resampling tasks. [Metrics](../metrics.md) has the standard ones.

## In an experiment file

```yaml
metadata:
  success_metric: val.best@3
  benchmark:
    name: val
    num_samples: 3
    metrics: [best@3, mean_reward]
```
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import attrs

from evsys import option, register_metric


@register_metric("best@k")
@attrs.frozen(kw_only=True)
class BestAtK:
    """The best of the first k rewards of each task, averaged over tasks."""

    direction: ClassVar[Literal["max", "min"]] = "max"
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"k": 2}}

    k: int = option(..., "Samples of a task that are looked at.", ge=1)

    @property
    def needs_samples(self) -> int:
        return self.k

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        if any(len(rewards) < self.k for rewards in task_rewards):
            raise ValueError(f"each task needs {self.k} samples")
        best = [max(rewards[: self.k]) for rewards in task_rewards]
        return sum(best) / len(best) if best else float("nan")
