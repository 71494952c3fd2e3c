"""Why an experiment ended as it did, in words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from evsys_record.marks import with_marks
from evsys_record.text import list_names
from evsys_runtime.experiment.insight.failures import strip_names
from evsys_runtime.experiment.verdict.tables import number, signed_text

if TYPE_CHECKING:
    from evsys.types import Comparison, Look
    from evsys_record.differing import Difference
    from evsys_runtime.experiment.insight.results import Why, WhyArm, WhyFailed, WhyParent

__all__ = ["why_lines"]


MOST_ARMS = 20
"""Maximum number of arms to print and to compare with the parent's; `EXPERIMENT/ARM` shows any other."""


def why_lines(found: Why) -> Iterator[str]:
    """Verdict, numbers, doubts, failures, differences from the parent, and a remedy; facts shared by several arms are printed once."""
    name = f"{found.experiment_id}{f'/{found.arm}' if found.arm else ''}"
    yield f"{name}: {with_marks(found.verdict or found.status, found.subject, found.marks)}"
    yield f"  {found.reason}"
    if found.metric is not None:
        aim = f", minimum effect {found.minimum_effect:g}" if found.minimum_effect else ""
        better = "lower" if found.direction == "min" else "higher"
        yield f"  by {found.metric}, {better} is better, against {found.baseline}{aim}"
    yield from _section("numbers", list(_numbers(found.arms, found.failed)))
    if found.confirmed is not None:
        yield from _section("on runs that had no part in the choice", list(_numbers([found.confirmed])))
    if len(found.looks) > 1:
        yield from _section("looks at this question", list(map(_look, found.looks)))
    yield from _section("checkpoints", found.checkpoints)
    yield from _section("what weakens it", found.weakened)
    yield from _section("what failed", list(_failures(found.failed)))
    if found.parent is not None:
        verdict = with_marks(found.parent_verdict or "no verdict", found.parent_subject, found.parent_marks)
        title = f"against its parent {found.parent}, {verdict}"
        yield from _section(title, list(_changes(found.changed)))
    if found.settle is not None:
        yield from _section("what would settle it", [found.settle])


def _look(look: Look) -> str:
    """A look at the question: the experiment, its verdict and effect, and the p-value with the level that it had."""
    bounds = "" if look.low is None or look.high is None else f" [{number(look.low)}, {number(look.high)}]"
    effect = "" if look.effect is None else f", effect {signed_text(look.effect)}{bounds}"
    p = "" if look.p_value is None else f", p {look.p_value:.2g}"
    level = "" if look.level is None else f" at level {look.level:.2g}"
    return f"{look.experiment_id}: {look.verdict or 'not concluded'}{effect}{p}{level}"


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _numbers(arms: Sequence[WhyArm], failed: Sequence[WhyFailed] = ()) -> Iterator[str]:
    """Each outcome with its grounds and its arms; of many arms only the best."""
    groups: dict[tuple[str, ...], list[WhyArm]] = {}
    for each in arms:
        groups.setdefault(_arm_row(each, failed), []).append(each)
    grounds = {ground for *_, ground in groups if ground}
    once = len(grounds) == 1 and len(groups) > 1
    if once:
        yield from (f"each {ground}" for ground in grounds)
    best = sorted(groups, key=lambda told: -_effect(groups[told][0].comparison))[:MOST_ARMS]
    for told, group in groups.items():
        if told in best:
            outcome, says, ground = told
            yield f"{list_names([each.comparison.arm for each in group])}: {outcome}"
            yield from (f"  {line}" for line in (says, "" if once else ground) if line)
    left = Counter(
        each.comparison.outcome for told, group in groups.items() if told not in best for each in group
    )
    if left:
        counted = ", ".join(f"{count} {outcome}" for outcome, count in sorted(left.items()))
        yield f"and {left.total()} more arms, none better ({counted})"


def _arm_row(each: WhyArm, failed: Sequence[WhyFailed]) -> tuple[str, str, str]:
    """The outcome of an arm with its numbers, its grounds, and the basis of the claim.

    The reason for a missing score is omitted for an arm with failed runs, which are listed.
    """
    one = each.comparison
    if one.effect is None:
        of_arm = re.compile(rf"{re.escape(one.arm)}-s\d+(\..*)?")  # also of a stage, but not of arm-small
        told = any(of_arm.fullmatch(run.run_id) for run in failed)
        return one.outcome if told else f"{one.outcome}; {each.says}", "", ""
    bounds = "" if one.low is None or one.high is None else f" [{number(one.low)}, {number(one.high)}]"
    runs = f"{one.n_seeds} training run{'s' * (one.n_seeds != 1)}"
    return (
        f"{one.outcome}, {number(one.before)} -> {number(one.after)}, effect {signed_text(one.effect)}{bounds}",
        each.says,
        f"a claim about the {one.claim or 'checkpoint'}, from {runs} and {one.n_tasks} tasks by {one.method or 'no test'}",
    )


def _effect(one: Comparison) -> float:
    return -math.inf if one.effect is None else one.effect


def _failures(failed: Sequence[WhyFailed]) -> Iterator[str]:
    """Each way in which runs ended, with all the runs that ended so."""
    groups: dict[object, list[WhyFailed]] = {}
    for each in failed:
        alike = each.way, strip_names(each.message), each.hint, each.place, each.region
        groups.setdefault(alike, []).append(each)
    for group in groups.values():
        each = group[0]
        place = f" ({each.place})" if each.place and each.place not in each.message else ""
        steps = sorted({one.steps for one in group if one.steps is not None})
        after = f" after {_span(steps)} step{'s' * (steps != [1])}" if steps else ""
        yield f"{list_names([one.run_id for one in group])}: {each.way}{after}: {each.message}{place}"
        if each.hint:
            yield f"  {each.hint}"
        if each.runs_on_record > len(group) or each.region:
            known = " (known to be bad)" if each.known_bad else ""
            where = f", where {each.region}{known}" if each.region else ""
            yield f"  {each.runs_on_record} run{'s' * (each.runs_on_record != 1)} on record ended so{where}"


def _span(steps: Sequence[int]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"


def _changes(changed: Sequence[WhyParent]) -> Iterator[str]:
    """Each arm compared with the nearest one of the parent; differences shared by all come first, once."""
    everywhere = (
        [one for one in changed[0].differences if all(one in each.differences for each in changed)]
        if len(changed) > 1
        else []
    )
    if everywhere:
        yield f"all {len(changed)} arms"
        yield from map(_difference, everywhere)
    for each in changed[:MOST_ARMS]:
        effects = (
            f": effect {signed_text(each.parent_effect)} -> {signed_text(each.effect)}"
            if each.effect is not None and each.parent_effect is not None
            else ""
        )
        yield f"{each.arm} compared with {each.parent_arm}{effects}"
        yield from (_difference(one) for one in each.differences if one not in everywhere)
        if not each.differences:
            yield "  the same config"
    if len(changed) > MOST_ARMS:
        yield f"and {len(changed) - MOST_ARMS} more arms"


def _difference(one: Difference) -> str:
    return f"  {one.path}: {one.one or 'not set'} -> {one.other or 'not set'}"
