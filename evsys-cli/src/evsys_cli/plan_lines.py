"""A plan in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from evsys_cli.output import table_lines
from evsys_record.marks import with_marks
from evsys_runtime.experiment.verdict.tables import number

if TYPE_CHECKING:
    from evsys_record.differing import Difference
    from evsys_runtime.experiment.estimate.results import (
        Design,
        Neighbour,
        Planned,
        PlannedArm,
        PlannedConfirm,
        PlannedLimit,
        PlannedScoring,
        PlannedSearch,
    )

__all__ = ["count_words", "difference_words", "money_words", "plan_lines", "search_words", "time_words"]

UNKNOWN = "unknown"
MOST_DIFFERENCES = 3


def plan_lines(found: Planned, *, width: int) -> Iterator[str]:
    """The whole plan.

    Args:
        found: the plan.
        width: of the terminal.
    """
    side = f", {found.concurrent} at once" if found.concurrent > 1 and found.runs > 1 else ""
    if found.search is not None:
        yield f"{found.name}: {search_words(found.search)}, {_count(found.runs, 'run')}{side}"
    else:
        what = "arm" if all(arm.stage is None for arm in found.arms) else "stage"
        yield f"{found.name}: {_count(len(found.arms), what)}, {_count(found.runs, 'run')}{side}"
    yield ""
    columns = ("runs", "rows", "steps", "tokens", "time", "cost")
    yield from table_lines("training, a run", columns, [_arm_row(arm) for arm in found.arms], width=width)
    yield from _second_models(found.arms)
    yield from _reuse_lines(found.arms)
    yield ""
    if found.scorings:
        columns = ("tasks", "scorings", "rollouts", "tokens", "time", "cost")
        rows = [_scoring_row(scoring) for scoring in found.scorings]
        yield from table_lines("scoring, all runs", columns, rows, width=width)
        yield ""
    yield (
        f"in all: steps {count_words(found.steps)}, tokens trained {count_words(found.trained_tokens)}, "
        f"time {time_words(found.seconds)}{' one run after another' if found.seconds is not None else ''}, cost {money_words(found.cost_usd)}"
    )
    yield from (f"  {_limit(limit, concurrent=found.concurrent)}" for limit in found.budget)
    yield from (f"  {_limit(limit, concurrent=found.concurrent, project=True)}" for limit in found.project)
    reasons: dict[str, list[str]] = {}
    for arm in found.arms:
        for reason in arm.unknown:
            reasons.setdefault(reason, []).append(arm.arm)
    for reason, arms in reasons.items():
        whose = "" if len(arms) == len(found.arms) else f" ({', '.join(arms)})"
        yield f"  {reason}{whose}"
    yield ""
    if found.design is None:
        yield "no success metric: nothing will be decided"
    else:
        yield from _design(found.design)
    yield ""
    if found.confirm is not None:
        yield from _confirm(found.confirm)
        yield ""
    if found.search is None:
        yield from _neighbours(found.neighbours)


def _second_models(arms: Iterable[PlannedArm]) -> Iterator[str]:
    for arm in arms:
        for role, amount in arm.second_models.items():
            yield f"  of that, the {role} of {arm.arm}: cost {money_words(amount)}"


def _reuse_lines(arms: Iterable[PlannedArm]) -> Iterator[str]:
    """The arms whose runs are on record already."""
    for arm in arms:
        if arm.reused:
            runs = "" if arm.runs == 1 else f" {len(arm.reused)} of {arm.runs} runs"
            sources = ", ".join(dict.fromkeys(arm.reused))
            yield f"  {arm.arm}:{runs} reused from {sources}, which takes nothing"


def search_words(search: PlannedSearch) -> str:
    """A search in words."""
    arms = "an unknown number of arms" if search.arms is None else f"at most {_count(search.arms, 'arm')}"
    return f"search {search.kind}, {arms}{', some of which it stops early' if search.stops else ''}"


def _arm_row(arm: PlannedArm) -> tuple[str, ...]:
    return (
        arm.arm,
        str(arm.runs),
        count_words(arm.rows),
        count_words(arm.steps),
        count_words(arm.trained_tokens),
        time_words(arm.seconds),
        money_words(arm.cost_usd),
    )


def _scoring_row(scoring: PlannedScoring) -> tuple[str, ...]:
    return (
        f"{scoring.benchmark} ({scoring.split})",
        str(scoring.tasks),
        count_words(scoring.scorings),
        count_words(scoring.rollouts),
        count_words(scoring.tokens),
        time_words(scoring.seconds),
        money_words(scoring.cost_usd),
    )


def _limit(limit: PlannedLimit, *, concurrent: int, project: bool = False) -> str:
    """Whether the experiment fits a limit of its budget, or what its project has left."""
    parts = {"training": limit.training, "scoring": limit.scoring}
    if limit.name in ("steps", "arms"):
        del parts["scoring"]
    takes = ", ".join(f"{part} {_amount(limit.name, amount)}" for part, amount in parts.items())
    if limit.confirmation:
        takes += f", and confirming a winner {_amount(limit.name, limit.confirmation)} on top"
    at_once = f", {concurrent} runs at once" if limit.name == "wall_seconds" and concurrent > 1 else ""
    verdict = {True: "fits", False: "does not fit", None: "may not fit"}[limit.fits]
    whose = f"the project's {limit.name} left," if project else f"budget.{limit.name} of"
    return f"{verdict} {whose} {_amount(limit.name, limit.limit)}: {takes}{at_once}"


def _amount(name: str, value: float | None) -> str:
    """An amount in the unit of a limit."""
    if name == "usd":
        return money_words(value)
    return (
        time_words(value) if name == "wall_seconds" else count_words(value if value is None else round(value))
    )


def _design(design: Design) -> Iterator[str]:
    word = "higher" if design.direction == "max" else "lower"
    yield f"{design.metric} ({word} is better), {_count(design.comparisons, 'arm')} against {design.baseline}"
    of = f"{_count(design.tasks, 'task')}" + (f" in {design.units} clusters" if design.clustered else "")
    look = "" if design.look is None or design.look == 1 else f", look {design.look} at this question"
    yield f"  {of}, {_count(design.runs, 'run')} an arm, each at p <= {design.level:.2g}{look}"
    yield from (f"  {line}" for line in _power(design))
    if design.margin:
        yield f"  {_power_sentence(design)}"
    if design.baseline_score is not None:
        yield (
            f"  the baseline has {number(design.baseline_score)} on record; {design.tasks_at_floor} tasks are at the floor, "
            f"{design.tasks_at_ceiling} at the ceiling"
        )
    if design.permutation_floor is not None:
        yield f"  a permutation of seeds gives p = {design.permutation_floor:.2g} at best"
    yield from (f"  {note}" for note in design.notes)


def _confirm(confirm: PlannedConfirm) -> Iterator[str]:
    seeds = _count(confirm.seeds, "fresh seed")
    if confirm.fewest_seeds < confirm.seeds:
        seeds = f"{confirm.fewest_seeds} to {seeds}"
    why = "" if confirm.seeds_reason is None else f" ({confirm.seeds_reason})"
    how = f"retrained with {seeds}{why}" if confirm.seeds else "evaluated again"
    yield (
        f"confirmation, if an arm wins: {how}, {_count(confirm.runs, 'run')} and at most {count_words(confirm.rollouts)} rollouts on "
        f"{confirm.benchmark}, steps {count_words(confirm.steps)}, tokens trained {count_words(confirm.trained_tokens)}, "
        f"training {time_words(confirm.seconds)}, cost {money_words(confirm.cost_usd)}"
    )
    if confirm.design is not None:
        yield from list(_design(confirm.design))[1:]


def _power(design: Design) -> Iterator[str]:
    """The detectable effect, and its range over the unknowns."""
    if design.smallest_detectable_effect is None or design.power_high is None:
        return
    seen = number(design.smallest_detectable_effect)
    if design.asked in ("no_worse", "equal"):
        shown = "no worse" if design.asked == "no_worse" else "equal"
        what = f"equal arms are shown to be {shown} within a margin of {seen}"
    else:
        what = f"smallest detectable effect: {seen}"
    best = design.smallest_detectable_at_best
    at_best = "" if best is None else f"; at best {number(best)}"
    yield f"{what}, with at least 80 % power ({design.power_low:.2f} to {design.power_high:.2f}){at_best}"
    ranges = {
        "correlation of two arms": design.correlation,
        "base rate": design.base_rate,
        "run-to-run deviation": design.run_deviation,
    }
    ranges_words = ", ".join(f"{name} {_range(ends)}" for name, ends in ranges.items() if ends is not None)
    yield f"judging by {design.basis}{f'; {ranges_words}' if ranges_words else ''}"


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2g} to {ends[1]:.2g}"


def _power_sentence(design: Design) -> str:
    """Whether the design can detect the minimum effect, and which design could."""
    seen, margin, needed = design.smallest_detectable_effect, design.margin or 0.0, []
    if design.asked in ("no_worse", "equal"):
        aim, what = margin, f"a margin of {margin:g}"
    else:
        named = "minimum_effect" if design.asked in (None, "better") else "margin"
        aim, what = 2 * margin, f"an effect of {2 * margin:g}, twice the {named} of {margin:g}"
    if design.tasks_needed is not None:
        needed.append(f"about {design.tasks_needed:,} tasks")
    if design.runs_needed is not None:
        needed.append(f"about {design.runs_needed:,} runs an arm on these tasks")
    shown = design.tasks_needed is not None and design.tasks_needed <= design.tasks
    if shown or (seen is not None and seen <= aim):
        return f"enough for {what}" + (f", for which {needed[0]} would do" if needed else "")
    return f"too few for {what}: {' or '.join(needed) or 'no number of tasks or runs alone'} would do"


def _neighbours(found: tuple[Neighbour, ...]) -> Iterator[str]:
    if not found:
        yield "nothing like it is on record"
        return
    yield "on record"
    for near in found:
        what = f"{near.experiment_id}/{near.other_arm}"
        ended = ", ".join(
            part
            for part in (
                near.status,
                None if near.score is None else f"score {number(near.score)}",
                near.outcome,
                with_marks(near.verdict, near.subject, near.marks),
            )
            if part
        )
        if near.differences:
            shown = [difference_words(each) for each in near.differences[:MOST_DIFFERENCES]]
            yield f"  {near.arm} is near {what} ({ended}): {'; '.join(shown)}"
        else:
            seeds = "with the same seeds" if near.same_seeds else "with other seeds"
            yield f"  {near.arm} was run before, {seeds}: {what} ({ended})"


def difference_words(difference: Difference) -> str:
    """A key with its value on both sides."""
    return f"{difference.path} {difference.one or 'not set'}, there {difference.other or 'not set'}"


def count_words(value: int | None) -> str:
    """A number with commas, or that it isn't known."""
    return UNKNOWN if value is None else f"{value:,}"


def time_words(seconds: float | None) -> str:
    """Seconds in the unit that fits."""
    if seconds is None:
        return UNKNOWN
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def money_words(cost: float | None) -> str:
    """US dollars; none, or not known."""
    return (
        UNKNOWN
        if cost is None
        else "none"
        if not cost
        else f"${cost:.2f}"
        if cost >= 0.01
        else f"${cost:.2g}"
    )


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
