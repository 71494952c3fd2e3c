"""The listeners of a run hear of its end once, however it ends."""

from __future__ import annotations

import attrs

from evsys import HookManager
from evsys.types import ArmResult, RunContext

__all__ = ["LAST_WORD_SECONDS", "Listening"]

LAST_WORD_SECONDS = 10.0
"""How long the listeners of a run cut off may take to hear of its end."""


@attrs.define(kw_only=True, eq=False)
class Listening:
    """The listeners of one attempt; none is called before there is a context.

    An attempt that goes back behind a collapse is replaced by another one, which has listeners of its own once its
    model is loaded. Until then these stay: if that fails, they are notified of the run's end. `left` is the result
    of an attempt about to be replaced.
    """

    hooks: HookManager = attrs.field(factory=HookManager)
    ctx: RunContext | None = None
    left: ArmResult | None = None
    _over: bool = False

    async def notify_end(self, result: ArmResult) -> None:
        """Notify them of the end, unless they were already. A failure is reported before."""
        if self._over or self.ctx is None:
            return
        self._over = True
        if result.failure is not None:
            await self.hooks.emit("evsys_run_failed", ctx=self.ctx, failure=result.failure)
        await self.hooks.emit("evsys_run_finished", ctx=self.ctx, result=result)

    async def stop_listening(self) -> None:
        """Others listen from here on: of an attempt that has replaced this one, or of other weights of the same one."""
        if self.left is not None:
            await self.notify_end(self.left)
