"""A callback listens to a run, and may end it early by `ctx.request_stop(reason)`. It is a class with any of the
[hooks](../hooks.md) as methods, each of which may name any subset of the hook's arguments and may be async.

Each run has instances of its own. One that raises is counted in the result's warnings; the run continues.
[Callbacks](../callbacks.md) has the standard ones.

## In an experiment file

```yaml
callbacks:
  - kind: patience
    params: {steps: 30}
```
"""

from collections.abc import Mapping

import attrs

from evsys import option, register_callback
from evsys.types import RunContext


@register_callback("patience")
class Patience:
    """Ends a run whose loss has stopped falling."""

    @attrs.frozen(kw_only=True)
    class Config:
        """Params of `patience`."""

        steps: int = option(20, "Steps without a lower loss after which a run ends.", ge=1)

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.lowest, self.at = float("inf"), 0

    def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        loss = metrics.get("loss", float("inf"))
        if loss < self.lowest:
            self.lowest, self.at = loss, step
        elif step - self.at >= self.steps:
            ctx.request_stop(f"no lower loss for {self.steps} steps")
