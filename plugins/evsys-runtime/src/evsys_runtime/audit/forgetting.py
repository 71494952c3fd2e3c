"""The forgetting of arms that learn dataset after dataset, recomputed from the rollouts of their stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from evsys_record import slug
from evsys_runtime.audit.decision import claim_p
from evsys_runtime.audit.distributions import t_quantile
from evsys_runtime.audit.evidence import Evidence, Scoring
from evsys_runtime.audit.findings import Section
from evsys_runtime.audit.metrics import TaskMetric, task_metric
from evsys_runtime.audit.paired_tests import BinaryPairs, Estimate, PairedTest, SignFlips
from evsys_runtime.audit.question import BASE_MODEL, Question
from evsys_runtime.audit.sides import ArmRun, Side, final_scoring, side_of, untrained_scoring

__all__ = ["check_forgetting"]

type Tree = Mapping[str, Any]
type Chain = Sequence[ArmRun]
"""The stages of an arm at one repeat, in their order."""

_START = "start"
_DRAWS = 10_000


@attrs.frozen(kw_only=True)
class _Row:
    """A benchmark with the stage (from 1) that it belongs to, and the standard metric that it is judged by."""

    place: int
    benchmark: str
    metric: str
    own: int
    task_metric: TaskMetric
    sign: float
    rewards: tuple[float, float] | None

    @property
    def question(self) -> Question:
        """The row as a question about a loss, which knows how far a task can change."""
        return Question(
            benchmark=self.benchmark,
            metric=self.metric,
            task_metric=self.task_metric,
            sign=self.sign,
            baseline=BASE_MODEL,
            claim="worse",
            margin=0.0,
            contrast=None,
            level=0.05,
            draws=_DRAWS,
            rewards=self.rewards,
            range_known=True,
        )

    def scoring(self, chain: Chain, column: int) -> Scoring | None:
        """The scoring of a column: that of the starting weights, then one for each stage."""
        if column == 0:
            return untrained_scoring(chain[0], self.benchmark)
        return final_scoring(chain[column - 1], self.benchmark)

    def value(self, chain: Chain, column: int) -> float | None:
        """The mean over tasks; None where it wasn't scored."""
        return self.side([chain], column).value

    def side(self, chains: Sequence[Chain], column: int) -> Side:
        """The scores of some chains at a column, task by task."""
        scored = [(chain[max(0, column - 1)].run_id, self.scoring(chain, column)) for chain in chains]
        return side_of(self.benchmark, scored, self.metric, self.task_metric, planned=len(chains))


@attrs.frozen(kw_only=True)
class _Change:
    """A later score of a row and the one after its own stage, on the tasks that both have."""

    row: _Row
    then: Side
    now: Side

    def test(self, share: float = 1.0) -> PairedTest | None:
        """The test of `now - share * then`, signed so that below 0 is a loss; None where the two can't be compared."""
        tasks = sorted(self.then.values.keys() & self.now.values.keys())
        if not tasks or self.then.invalid or self.now.invalid:
            return None
        above, below = (self.now, self.then) if self.row.sign > 0 else (self.then, self.now)
        differences = {task: above.values[task] - share * below.values[task] for task in tasks}
        seen = self.then.rewards | self.now.rewards
        if share == 1.0 and self.then.binary and self.now.binary and not self.now.clusters:
            return BinaryPairs(np.array([*differences.values()]))
        largest = self.row.question.largest_difference(seen) if share == 1.0 else self._largest(share, seen)
        return SignFlips(differences, self.now.clusters, largest=largest, draws=_DRAWS)

    def _largest(self, share: float, seen: frozenset[float]) -> float | None:
        ends: tuple[float, float] | None = (0.0, 1.0)
        if self.row.task_metric.of_rewards:
            ends = self.row.rewards or ((0.0, 1.0) if seen <= {0.0, 1.0} else None)
        return None if ends is None else max(ends[1] - share * ends[0], share * ends[1] - ends[0])


def check_forgetting(section: Section, evidence: Evidence) -> None:
    """Check every matrix of what an arm forgets: scores, differences with their intervals, and the tests of the limit."""
    for matrix in evidence.conclusion.get("forgetting") or ():
        part = section.section("numbers", f"forgetting of {matrix['arm']}")
        chains = _chains(evidence, matrix["arm"])
        labels = _labels(evidence, matrix["arm"])
        part.same("stages", list(matrix["stages"]), labels)
        own = _own_stages(evidence)
        part.same("own", dict(zip(matrix["benchmarks"], matrix["own"], strict=True)), own)
        part.same("seeds", matrix["seeds"], len(chains))
        if list(matrix["stages"]) != labels or [*own] != list(matrix["benchmarks"]):
            continue
        rows = [*_rows(part, evidence, matrix, chains)]
        for row in rows:
            _check_row(part, row, matrix, chains, range(len(labels)))
        if len(rows) == len(own):
            _check_tests(part, rows, matrix, chains, (evidence.resolved.get("continual") or {}))


def _chains(evidence: Evidence, arm: str) -> list[Chain]:
    found: dict[int, list[ArmRun]] = {}
    for run in evidence.runs:
        if run.arm == arm and run.stage is not None:
            found.setdefault(run.repeat, []).append(
                ArmRun(
                    arm=arm,
                    run_id=run.run_id,
                    purpose=run.purpose,
                    repeat=run.repeat,
                    completed=run.completed,
                    selected_step=run.selected_step,
                    scorings=run.scorings,
                )
            )
    return [*found.values()]


def _labels(evidence: Evidence, arm: str) -> list[str]:
    stages = (run.stage for run in evidence.runs if run.arm == arm and run.stage is not None)
    return [_START, *dict.fromkeys(stages)]


def _own_stages(evidence: Evidence) -> dict[str, int]:
    """The stage of each benchmark: the first whose dataset names it, or has its name."""
    entries = {str(entry["name"]) for entry in evidence.resolved.get("benchmarks") or ()}
    found: dict[str, int] = {}
    for number, dataset in enumerate((evidence.resolved.get("continual") or {}).get("datasets") or (), 1):
        name = slug(dataset["name"]) if dataset.get("name") else f"data-{number}"
        asked = dataset.get("benchmark") or name
        if asked in entries:
            found.setdefault(asked, number)
    return found


def _rows(part: Section, evidence: Evidence, matrix: Tree, chains: Sequence[Chain]) -> Iterator[_Row]:
    for place, (benchmark, metric) in enumerate(zip(matrix["benchmarks"], matrix["metrics"], strict=True)):
        entry = evidence.entry(benchmark)
        known = task_metric(metric, entry)
        if known is None:
            part.unchecked(f"{benchmark}.{metric}", "a metric of a plugin, and an audit runs no plugins")
            continue
        runs = (run for chain in chains for run in chain)
        scorings = (s.tree for run in runs for s in run.scorings if s.key[0] == benchmark)
        directions = {tree["metrics"][metric]["direction"] for tree in scorings if metric in tree["metrics"]}
        low, high = entry.get("reward_range") or (None, None)
        yield _Row(
            place=place,
            benchmark=benchmark,
            metric=metric,
            own=matrix["own"][place],
            task_metric=known,
            sign=-1.0 if directions == {"min"} else 1.0,
            rewards=None if low is None or high is None else (float(low), float(high)),
        )


def _check_row(
    section: Section, row: _Row, matrix: Tree, chains: Sequence[Chain], columns: Sequence[int]
) -> None:
    recorded = matrix["values"][row.place]
    scores = [
        _mean([value for chain in chains if (value := row.value(chain, column)) is not None])
        for column in columns
    ]
    for column in columns:
        if column <= row.own or not matrix["changes"]:  # or a record of before there were differences
            section.close(f"{row.benchmark} at {matrix['stages'][column]}", recorded[column], scores[column])
            continue
        part = section.section("numbers", _about(matrix, row, column))
        part.close("before", recorded[row.own], scores[row.own])
        part.close("after", recorded[column], scores[column])
        change = [matrix[key][row.place][column] for key in ("changes", "change_low", "change_high")]
        _check_change(part, row, chains, column, change)


def _about(matrix: Tree, row: _Row, column: int) -> str:
    return f"forgetting: {matrix['arm']}: {row.benchmark} after {matrix['stages'][column]}"


def _check_change(
    part: Section, row: _Row, chains: Sequence[Chain], column: int, recorded: Sequence[float | None]
) -> None:
    """A difference of a later score, with its interval over tasks and, where there are several, over seeds."""
    pairs = [*_scored_pairs(row, chains, column)]
    if not pairs:
        for name, value in zip(("effect", "low", "high"), recorded, strict=True):
            part.same(name, value, None)
        return
    complete = [chain for chain, _ in pairs]
    test = _Change(row=row, then=row.side(complete, row.own), now=row.side(complete, column)).test()
    by_seed = [difference for _, difference in pairs]
    part.close("effect", recorded[0], _mean(by_seed) if test is None else test.effect)
    if test is None:
        return
    effect, seeds = test.effect, _half_width(by_seed)
    width = _largest_change(row, complete, column)

    def end(tasks: float, direction: float) -> float:
        return max(-width, min(width, effect + direction * math.hypot(effect - tasks, seeds)))

    _check_ends(part, test, recorded[1:], end)


def _scored_pairs(row: _Row, chains: Sequence[Chain], column: int) -> Iterator[tuple[Chain, float]]:
    """The chains that have both scores, with the signed difference of these."""
    for chain in chains:
        then, now = row.value(chain, row.own), row.value(chain, column)
        if then is not None and now is not None:
            yield chain, row.sign * (now - then)


def _largest_change(row: _Row, chains: Sequence[Chain], column: int) -> float:
    seen = row.side(chains, row.own).rewards | row.side(chains, column).rewards
    return row.question.largest_difference(seen) or math.inf


def _check_ends(
    part: Section,
    test: PairedTest,
    recorded: Sequence[float | None],
    moved: Callable[[float, float], float] = lambda end, _direction: end,
) -> None:
    """The ends of an interval, as far as draws leave them open; `moved` adds what else it is made of."""
    for name, value, direction in zip(("low", "high"), recorded, (-1.0, 1.0), strict=True):
        ends = test.end(direction)
        lowest, highest = sorted((moved(ends.near, direction), moved(ends.far, direction)))
        slack = test.slack + 1e-9
        part.within(name, value, lowest - slack, highest + slack)


def _check_tests(
    section: Section, rows: Sequence[_Row], matrix: Tree, chains: Sequence[Chain], continual: Tree
) -> None:
    """The tests of the allowed loss, and that the chains which exceeded it are named as ended early."""
    limit = next(
        (key for key in ("maximum_loss", "minimum_retention") if continual.get(key) is not None), None
    )
    recorded = {(test["run"], test["benchmark"], test["stage"]): test for test in matrix["tests"]}
    if limit is None:
        section.same("tests", len(recorded), 0)
        return
    stages = len(continual["datasets"])
    level = float(continual["level"]) / max(1, sum(max(0, stages - 1 - row.own) for row in rows))
    expected: dict[tuple[str, str, str], tuple[_Row, Chain, int]] = {}
    for chain in chains:
        run = f"{chain[0].arm}-s{chain[0].repeat}"
        for column in range(1, len(chain)):
            for row in rows:
                if row.own < column and chain[row.own - 1].scorings and chain[column - 1].scorings:
                    expected[run, row.benchmark, matrix["stages"][column]] = (row, chain, column)
    tested = {key for key, test in recorded.items() if test["p_value"] is not None or key in expected}
    section.same("tests", sorted(map(str, tested)), sorted(map(str, expected)))
    for key in expected.keys() & recorded.keys():
        row, chain, column = expected[key]
        whose = "" if len(chains) == 1 else f", {key[0]}"
        part = section.section("numbers", f"{_about(matrix, row, column)}{whose}")
        change = _Change(row=row, then=row.side([chain], row.own), now=row.side([chain], column))
        part.close("level", recorded[key]["level"], level)
        _check_test(part, change, recorded[key], limit, float(continual[limit]))
    over = sum(test["outcome"] == "exceeded" for test in matrix["tests"])
    section.same("stopped", len(matrix["stopped"]), over)


def _check_test(part: Section, change: _Change, recorded: Tree, limit: str, value: float) -> None:
    verdict = part.section("verdict", part.about)
    verdict.same("limit", recorded["limit"], f"{limit} {value:g}")
    test = change.test()
    tested, margin = (test, value) if limit == "maximum_loss" else (change.test(value), 0.0)
    if test is None or tested is None:
        verdict.same("outcome", recorded["outcome"], "undecided")
        return
    part.close("change", recorded["change"], test.effect)
    _check_ends(
        part.section("numbers", f"{part.about}, one chain"), test, (recorded["low"], recorded["high"])
    )
    exceeded, within = (_p(change.row, claim, margin, tested) for claim in ("worse", "no_worse"))
    low, high = exceeded.value - exceeded.error, exceeded.value + exceeded.error
    part.within("claim_p", recorded["p_value"], low - 1e-9, high + 1e-9)
    allowed, level = set[str](), recorded["level"]
    if exceeded.maybe_at_most(level):
        allowed.add("exceeded")
    if not exceeded.surely_at_most(level):
        allowed |= {"within"} if within.maybe_at_most(level) else set()
        allowed |= set() if within.surely_at_most(level) else {"undecided"}
    outcome = recorded["outcome"]
    verdict.same("outcome", outcome, outcome if outcome in allowed else " or ".join(sorted(allowed)))


def _p(row: _Row, claim: str, margin: float, test: PairedTest) -> Estimate:
    return claim_p(attrs.evolve(row.question, claim=claim, margin=margin), test)


def _half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean over seeds by Student's t; 0 for a single one."""
    count = len(values)
    if count < 2:
        return 0.0
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return t_quantile(0.05, count - 1) * math.sqrt(variance / count)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
