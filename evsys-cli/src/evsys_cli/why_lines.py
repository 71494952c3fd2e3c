"""Why an experiment ended as it did, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from evsys_runtime.experiment.verdict.tables import number, signed

if TYPE_CHECKING:
    from evsys_runtime.record.remembered import Why, WhyArm, WhyFailed, WhyParent

__all__ = ["why_lines"]


def why_lines(found: Why) -> Iterator[str]:
    """Verdict, numbers, doubts, failures, what differs from the parent, what would settle it."""
    yield f"{found.experiment_id}{f'/{found.arm}' if found.arm else ''}: {found.verdict or found.status}"
    yield f"  {found.reason}"
    if found.metric is not None:
        aim = f", minimum effect {found.minimum_effect:g}" if found.minimum_effect else ""
        better = "lower" if found.direction == "min" else "higher"
        yield f"  by {found.metric}, {better} is better, against {found.baseline}{aim}"
    yield from _titled("numbers", [line for each in found.arms for line in _arm_lines(each)])
    if found.confirmed is not None:
        yield from _titled("on runs that had no part in the choice", _arm_lines(found.confirmed))
    yield from _titled("what weakens it", found.weakened)
    yield from _titled("what failed", [line for each in found.failed for line in _failed_lines(each)])
    if found.parent is not None:
        title = f"against its parent {found.parent} ({found.parent_verdict or 'no verdict'})"
        yield from _titled(title, [line for each in found.changed for line in _changed_lines(each)])
    if found.settle is not None:
        yield from _titled("what would settle it", [found.settle])


def _titled(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _arm_lines(each: WhyArm) -> list[str]:
    one = each.comparison
    if one.effect is None:
        return [f"{one.arm}: {one.outcome}; {each.says}"]
    bounds = "" if one.low is None or one.high is None else f" [{number(one.low)}, {number(one.high)}]"
    runs = f"{one.n_seeds} training run{'s' * (one.n_seeds != 1)}"
    return [
        f"{one.arm}: {one.outcome}, {number(one.before)} -> {number(one.after)}, effect {signed(one.effect)}{bounds}",
        f"  {each.says}",
        f"  a claim about the {one.claim or 'checkpoint'}, from {runs} and {one.n_tasks} tasks by {one.method or 'no test'}",
    ]


def _failed_lines(each: WhyFailed) -> Iterator[str]:
    place = f" ({each.place})" if each.place and each.place not in each.message else ""
    steps = "" if each.steps is None else f" after {each.steps} steps"
    yield f"{each.run_id}: {each.way}{steps}: {each.message}{place}"
    if each.hint:
        yield f"  {each.hint}"
    if each.runs_on_record > 1 or each.region:
        where = (
            f", where {each.region}{' (known to be bad)' if each.known_bad else ''}" if each.region else ""
        )
        yield f"  {each.runs_on_record} run{'s' * (each.runs_on_record != 1)} on record ended so{where}"


def _changed_lines(each: WhyParent) -> Iterator[str]:
    effects = (
        f": effect {signed(each.parent_effect)} -> {signed(each.effect)}"
        if each.effect is not None and each.parent_effect is not None
        else ""
    )
    yield f"{each.arm} beside {each.parent_arm}{effects}"
    for one in each.differences:
        yield f"  {one.path}: {one.one or 'not set'} -> {one.other or 'not set'}"
    if not each.differences:
        yield "  the same config"
