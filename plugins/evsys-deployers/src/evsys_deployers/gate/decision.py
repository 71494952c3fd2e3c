"""The decision of a gate, as a function of its scores alone, so that anyone can repeat it from the record.

A missing sample counts against a promotion as much as it can, and against a rejection as much as it can (Manski 1990). The target is
tested at the level of its look; guards and slices by Holm 1979 at the same level, since all of them have to hold. Tests are those of
the verdicts: paired by task, two-sided, so that each claim of one side is tested at half the level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np

from evsys.types import Claim, ClaimOutcome
from evsys_stats.claims import claim_outcome, claim_p, name_of_test
from evsys_stats.paired import Pair, Paired, paired_differences

__all__ = ["Decision", "EntryScores", "SideScores", "Test", "decide"]

type Verdict = Literal["PROMOTE", "HOLD", "REJECT"]
type Bounds = tuple[float, float]
type Asked = tuple[str, "EntryScores", float, Sequence[str] | None]

MIN_TASKS = 10
"""Fewer tasks than this show nothing, so a smaller slice isn't tested."""

_DRAWS = 10_000


@attrs.frozen(kw_only=True)
class SideScores:
    """The scores of one side on one benchmark.

    Attributes:
        values: of each task, the lowest and the highest that its metric can be; they differ where samples are missing.
        missing: samples without a score.
        tokens: completion tokens a rollout.
        seconds: a rollout.
    """

    values: Mapping[str, Bounds]
    missing: int
    tokens: float
    seconds: float


@attrs.frozen(kw_only=True)
class EntryScores:
    """Both sides on one benchmark.

    Attributes:
        benchmark: its label.
        metric: what is compared.
        direction: 1 if more is better, -1 if less is.
        candidate, incumbent: the scores.
        clusters: the cluster of each task that belongs to one.
        slices: by metadata key, the value of each task.
        largest: the largest difference that a task can have; None if unknown.
        binary: whether a task has one outcome of 0 or 1.
        changed: tasks whose answers differ.
        flips: tasks by `wrong to right` and `right to wrong`.
        hashes: of its tasks and its verifiers.
    """

    benchmark: str
    metric: str
    direction: float
    candidate: SideScores
    incumbent: SideScores
    clusters: Mapping[str, str]
    slices: Mapping[str, Mapping[str, str]]
    largest: float | None
    binary: bool
    changed: tuple[str, ...]
    flips: Mapping[str, tuple[str, ...]]
    hashes: Mapping[str, str | None]


@attrs.frozen(kw_only=True)
class Test:
    """One thing that has to hold.

    Attributes:
        name: what it is about.
        claim: `better` or `no_worse` for a test; `bound` for a number that has to be within a limit.
        limit: the margin or the limit.
        value: the effect, candidate minus incumbent, better above 0; or the number itself.
        low, high: its 95 % interval; None for a bound.
        p_value: corrected; None for a bound.
        outcome: `supported`, `undecided` or `refuted`.
        says: the test, or why it is undecided.
    """

    name: str
    claim: str
    limit: float
    value: float | None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    outcome: ClaimOutcome
    says: str


@attrs.frozen(kw_only=True)
class Decision:
    """PROMOTE if everything is shown, REJECT if the contrary of anything is, HOLD otherwise; `why` is in words."""

    verdict: Verdict
    why: str
    tests: tuple[Test, ...]
    untested: tuple[str, ...]


def decide(
    suite: Mapping[str, Any], entries: Sequence[EntryScores], *, level: float, doubts: Sequence[str] = ()
) -> Decision:
    """Decide by the scores.

    Args:
        suite: the values of the suite file, as plain values.
        entries: its benchmarks, in its order.
        level: of the target's look.
        doubts: reasons not to promote, whatever the scores.
    """
    target, rest = entries[0], list(entries[1:])
    guards, required = rest[: len(suite["guards"])], rest[len(suite["guards"]) :]
    tests = [
        _claim_tests(
            suite["claim"], [(target.benchmark, target, suite["margin"], None)], level, suite["seed"]
        )[0]
    ]
    guarded: list[Asked] = [
        (entry.benchmark, entry, guard["margin"], None)
        for entry, guard in zip(guards, suite["guards"], strict=True)
    ]
    untested = []
    for key, margin in suite["slices"].items():
        for value, tasks in sorted(_by_value(target.slices.get(key, {})).items()):
            if len(tasks) < MIN_TASKS:
                untested.append(
                    f"{target.benchmark} with {key}={value}: {len(tasks)} tasks, fewer than {MIN_TASKS}"
                )
            else:
                guarded.append((f"{target.benchmark} with {key}={value}", target, margin, tasks))
    tests += _claim_tests("no_worse", guarded, level, suite["seed"])
    tests += [
        _requirement(entry, spec["at_least"])
        for entry, spec in zip(required, suite["must_pass"], strict=True)
    ]
    tests += _bounds(target, suite["bounds"])
    return _decision(tests, tuple(untested), doubts)


def _decision(tests: Sequence[Test], untested: tuple[str, ...], doubts: Sequence[str]) -> Decision:
    refuted = [test for test in tests if test.outcome == "refuted"]
    undecided = [test for test in tests if test.outcome == "undecided"]
    verdict: Verdict = "REJECT" if refuted else "HOLD" if undecided or doubts else "PROMOTE"
    why = [f"{test.name}: {test.says}" for test in refuted or undecided]
    why = why if refuted else [*why, *doubts]
    said = "; ".join(why) or f"all of {len(tests)} tests hold"
    return Decision(verdict=verdict, why=said, tests=tuple(tests), untested=untested)


def _by_value(labels: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for task, value in labels.items():
        found.setdefault(value, []).append(task)
    return found


def _claim_tests(
    claim: Claim,
    asked: Sequence[Asked],
    level: float,
    seed: int,
) -> list[Test]:
    """Test a claim about several sets of tasks, corrected by Holm."""
    worst = [_compare(entry, tasks, seed, against=True) for _, entry, _, tasks in asked]
    best = [_compare(entry, tasks, seed, against=False) for _, entry, _, tasks in asked]
    p_values = _holm([claim_p(claim, each[2], paired) for each, paired in zip(asked, worst, strict=True)])
    return [
        _claim_test(claim, each, (low, high), p, level)
        for each, low, high, p in zip(asked, worst, best, p_values, strict=True)
    ]


def _claim_test(claim: Claim, asked: Asked, compared: tuple[Paired, Paired], p: float, level: float) -> Test:
    """The outcome of a claim: supported with missing samples against it, refuted with missing samples for it."""
    (name, _, margin, _), (worst, best) = asked, compared
    shown = claim_outcome(claim, margin, worst, p_corrected=p, level=level, refuting_level=0.0)
    against = claim_outcome(claim, margin, best, p_corrected=1.0, level=0.0, refuting_level=level)
    outcome: ClaimOutcome = (
        "supported" if shown == "supported" else "refuted" if against == "refuted" else "undecided"
    )
    boundary = margin if claim == "better" else -margin
    effect = f"{worst.effect:+.3f} [{worst.low:.3f}, {worst.high:.3f}]"
    if worst.effect != best.effect:
        effect = (
            f"between {worst.effect:+.3f} and {best.effect:+.3f}, by what missing samples would have scored"
        )
    return Test(
        name=name,
        claim=claim,
        limit=margin,
        value=worst.effect,
        low=worst.low,
        high=worst.high,
        p_value=p,
        outcome=outcome,
        says=f"{effect}, has to be above {boundary:+g} ({name_of_test(worst, boundary)}, p = {p:.2g} at level {level:.2g})",
    )


def _compare(entry: EntryScores, tasks: Sequence[str] | None, seed: int, *, against: bool) -> Paired:
    """Candidate minus incumbent, with what is missing against the candidate or for it."""
    chosen = sorted(entry.candidate.values if tasks is None else tasks)
    mine, theirs = entry.candidate.values, entry.incumbent.values
    low_first = against == (entry.direction > 0)
    arm, base = (0, 1) if low_first else (1, 0)
    labels = {cluster: place for place, cluster in enumerate(sorted(set(entry.clusters.values())))}
    clusters = np.array(
        [
            labels[entry.clusters[task]] if task in entry.clusters else len(labels) + place
            for place, task in enumerate(chosen)
        ]
    )
    pair = Pair(
        arm=np.array([mine[task][arm] for task in chosen]),
        baseline=np.array([theirs[task][base] for task in chosen]),
        clusters=clusters if any(task in entry.clusters for task in chosen) else None,
        largest=entry.largest,
        tasks=tuple(chosen),
    )
    return paired_differences([pair], sign=entry.direction, binary=entry.binary, draws=_DRAWS, seed=seed)[0]


def _holm(p_values: Sequence[float]) -> list[float]:
    """Step-down corrected p-values (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    found, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
        found[place] = highest
    return found


def _requirement(entry: EntryScores, at_least: float) -> Test:
    """Whether the candidate reaches a score on its own."""
    low, high = (sum(value[end] for value in entry.candidate.values.values()) for end in (0, 1))
    count = len(entry.candidate.values)
    lowest, highest = low / count, high / count
    if entry.direction < 0:
        lowest, highest = -highest, -lowest
        at_least = -at_least
    reached = lowest >= at_least - 1e-12
    outcome: ClaimOutcome = (
        "supported" if reached else "refuted" if highest < at_least - 1e-12 else "undecided"
    )
    shown = lowest if entry.direction > 0 else -lowest
    says = f"{shown:.3f} of {abs(at_least):g}"
    if outcome == "undecided":
        says += f", {entry.candidate.missing} samples have no score"
    return Test(
        name=entry.benchmark, claim="bound", limit=abs(at_least), value=shown, outcome=outcome, says=says
    )


def _bounds(target: EntryScores, bounds: Mapping[str, float | None]) -> list[Test]:
    """The ratios and the share of changed answers that are bounded."""
    mine, theirs = target.candidate, target.incumbent
    found = {
        "tokens": _ratio(mine.tokens, theirs.tokens),
        "seconds": _ratio(mine.seconds, theirs.seconds),
        "changed": len(target.changed) / len(mine.values),
    }
    names = {"tokens": "completion tokens", "seconds": "seconds a rollout", "changed": "changed answers"}
    tests = []
    for name, limit in bounds.items():
        if limit is None:
            continue
        value = found[name]
        outcome: ClaimOutcome = "undecided" if value is None else "supported" if value <= limit else "refuted"
        says = "not known" if value is None else f"{value:.3g} of at most {limit:g}"
        tests.append(
            Test(name=names[name], claim="bound", limit=limit, value=value, outcome=outcome, says=says)
        )
    return tests


def _ratio(mine: float, theirs: float) -> float | None:
    return mine / theirs if theirs > 0 else None
