"""Suggestions of what to do next, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evsys_cli.plan_lines import money_words, time_words
from evsys_record.marks import with_marks

if TYPE_CHECKING:
    from evsys.types import SettlingPoint
    from evsys_runtime.experiment.insight.results import Next, NextStep

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
        yield from (f"   an effect of {_point(each)}" for each in step.curve)
        if step.checkpoint is not None:
            yield f"   the selected checkpoint so far is {step.checkpoint}"
        yield f"   costs {money_words(step.cost_usd)}, {time_words(step.seconds)}; yields about {_information(step)}"
        yield f"   {_step_command(step, place)}"
    if len(found.steps) < found.total:
        yield f"{len(found.steps)} of {found.total}; --limit 0 lists all"


def _point(point: SettlingPoint) -> str:
    """The size of an effect, and its evidence."""
    parts = [
        None if point.tasks is None else f"{point.tasks:,} tasks",
        None if point.runs is None else f"{point.runs} training runs of each recipe",
        None if point.seconds is None else time_words(point.seconds),
        None if point.cost_usd is None else money_words(point.cost_usd),
    ]
    return f"{point.effect:g}: {', '.join(part for part in parts if part)}"


def _step_command(step: NextStep, place: int) -> str:
    if step.command is not None:
        return step.command
    if step.config is not None:
        return f"then: evsys next --config {place} > next-{place}.yaml && evsys run next-{place}.yaml"
    return "needs a decision first"


def _information(step: NextStep) -> str:
    """The expected information in bits, also per dollar and per hour if it costs any."""
    per = [("$", step.bits_per_usd), ("h", step.bits_per_hour)]
    rates = "".join(f", {rate:.3g} bits/{unit}" for unit, rate in per if rate is not None)
    return f"{step.worth:g} bits{rates}"
