"""What to do next, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evsys_cli.plan_lines import money_words, time_words
from evsys_runtime.record.marks import with_marks

if TYPE_CHECKING:
    from evsys_runtime.record.remembered import Next, NextStep

__all__ = ["next_lines"]


def next_lines(found: Next) -> Iterator[str]:
    """A few lines each, numbered as `--config` counts them."""
    if not found.steps:
        yield "Nothing on record asks for more: no winner to confirm, no open question, nothing unfinished."
        return
    for place, step in enumerate(found.steps, start=1):
        arm = "" if step.arm is None else f"/{step.arm}"
        name = with_marks(f"{step.experiment}{arm}", step.subject, step.marks)
        yield f"{place}. {step.kind} {name}: {step.learns}"
        yield f"   needs {step.needs}"
        if step.checkpoint is not None:
            yield f"   the selected checkpoint so far is {step.checkpoint}"
        yield f"   costs {money_words(step.cost_usd)}, {time_words(step.seconds)}; {_how(step, place)}"
    if len(found.steps) < found.total:
        yield f"{len(found.steps)} of {found.total}; --limit 0 lists all"


def _how(step: NextStep, place: int) -> str:
    if step.config is not None:
        return f"evsys next --config {place} > FILE, then evsys run FILE"
    return step.command or "somebody has to decide first"
