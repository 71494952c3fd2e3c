"""A training that holds between two steps, if someone asks for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from evsys.types import RunContext

__all__ = ["hold", "holds", "is_undisturbed"]


def holds(ctx: RunContext) -> bool:
    """Whether the run is asked to hold."""
    return ctx.pause is not None and ctx.pause.requested()


def is_undisturbed(ctx: RunContext) -> bool:
    """Whether the run is asked neither to stop nor to hold."""
    return ctx.stop_requested is None and not holds(ctx)


async def hold(ctx: RunContext, save: Callable[[], Awaitable[None]], *, unsaved: bool) -> None:
    """Hold behind a checkpoint until the run may continue, or is asked to stop.

    Args:
        ctx: the run's.
        save: saves the checkpoint.
        unsaved: there is none of this step yet.
    """
    if unsaved:
        await save()
    if ctx.pause is not None:
        await ctx.pause.hold()
