"""The end of research in numbers: who won, what to reserve for the confirmation, and the comparison on the sealed test."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import attrs
import numpy as np

from evsys.errors import EvsysError
from evsys.types import Round
from evsys_autoresearch.goal import Goal
from evsys_autoresearch.journal import Journal
from evsys_autoresearch.laboratory import CANDIDATE, START, Laboratory, error_text
from evsys_autoresearch.levers import apply_changes
from evsys_autoresearch.rules import arm_key
from evsys_runtime.config.plan import ALPHA, SuccessMetric
from evsys_stats.paired import paired_difference
from evsys_stats.recipe import recipe_claim

__all__ = ["Ending", "Winner", "best_of", "sealed_result", "seconds_to_reserve"]

_HALF_WIDTH = 1.96
"""Standard errors from the middle of a 95 % interval to its end."""


@attrs.frozen(kw_only=True)
class Winner:
    """The best arm on validation: the mean `score` over its `measurements`, and the first round that had it."""

    number: int
    score: float
    measurements: int
    hypothesis: str
    experiment: str | None
    changes: Mapping[str, Any]
    files: Mapping[str, str]

    def run(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Its run."""
        found: dict[str, Any] = apply_changes(start, self.changes)["run"]
        return found


def arms_of(rounds: Sequence[Round]) -> dict[str, list[Round]]:
    """The full measurements of each arm."""
    arms: dict[str, list[Round]] = {}
    for each in rounds:
        if each.status == "scored" and not each.cheap and each.score is not None:
            arms.setdefault(arm_key(each.changes, each.files), []).append(each)
    return arms


def lower_bound(measurements: Sequence[Round], success: SuccessMetric) -> float:
    """The mean score of an arm less one standard error, oriented so that more is better: luck counts for less the more often it was
    measured.
    """
    mean = fmean(success.oriented(each.score or 0.0) for each in measurements)
    errors = [
        (each.high - each.low) / (2 * _HALF_WIDTH)
        for each in measurements
        if each.low is not None and each.high is not None
    ]
    return mean - (fmean(errors) / len(measurements) ** 0.5 if errors else 0.0)


def best_of(rounds: Sequence[Round], start: Mapping[str, Any], success: SuccessMetric) -> Winner | None:
    """The arm with the best lower bound; None if no arm scored better than the start."""
    better = [
        measurements
        for measurements in arms_of(rounds).values()
        if fmean(success.oriented(each.score or 0.0) for each in measurements)
        > success.oriented(start["score"])
    ]
    if not better:
        return None
    best = max(better, key=lambda measurements: (lower_bound(measurements, success), -measurements[0].number))
    return Winner(
        number=best[0].number,
        score=fmean(each.score or 0.0 for each in best),
        measurements=len(best),
        hypothesis=best[0].hypothesis,
        experiment=best[0].experiment,
        changes=best[0].changes,
        files=best[0].files,
    )


def seconds_to_reserve(journal: Journal, seeds: int) -> dict[str, float]:
    """Time and money for the confirmation and the sealed test: `seeds` runs of start and winner, as long and dear as the dearest round, and their
    scoring once more.
    """
    if journal.find("confirmation.scored") is not None:
        return {"seconds": 0.0, "money": 0.0}
    ended = [line for line in journal.lines if line["event"] == "experiment.ended"]
    dearest = {fact: max((float(line[fact]) for line in ended), default=0.0) for fact in ("seconds", "money")}
    return {fact: value * (2 * seeds + 1) for fact, value in dearest.items()}


@attrs.frozen(kw_only=True, eq=False)
class Ending:
    """The last stages of a research run, each put on record once; `tell` gets a line about each."""

    goal: Goal
    research_id: str
    journal: Journal
    laboratory: Laboratory
    tell: Callable[[str], None]

    async def confirm(
        self, winner: Winner, rounds: Sequence[Round], files: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Start and winner retrained with fresh seeds."""
        done = self.journal.find("confirmation.scored")
        if done is not None:
            return done
        seeds = self.goal.config.confirm.seeds
        config = self.laboratory.config(
            f"{self.research_id}-confirm",
            winner.run(self.goal.tree),
            hypothesis=f"Round {winner.number} beats the start with fresh seeds: {winner.hypothesis}",
            parent=winner.experiment,
            repetition=len(rounds) + 1,
            repeats=seeds,
        )
        self.tell(f"confirming round {winner.number} with {seeds} fresh seeds")
        try:
            result = await self.laboratory.run(config, files)
        except EvsysError as exc:
            return self.journal.append(
                "confirmation.scored", effect=None, reason=error_text(exc), seconds=0.0
            )
        comparison = next((each for each in result.conclusion.comparisons if each.arm == CANDIDATE), None)
        facts = {} if comparison is None else attrs.asdict(comparison)
        return self.journal.append(
            "confirmation.scored",
            experiment=result.experiment_id,
            verdict=result.conclusion.verdict,
            reason=result.conclusion.reason,
            effect=facts.get("effect"),
            low=facts.get("low"),
            high=facts.get("high"),
            seeds=seeds,
            runs=[[each.run_id, each.arm] for each in result.arms],
            seconds=result.seconds,
            money=self.laboratory.measured(result, CANDIDATE).money,
        )

    async def open_sealed(self, confirmation: Mapping[str, Any]) -> Mapping[str, Any]:
        """The one look at the sealed test: every confirmation run is scored on it. Runs scored before a kill aren't scored again."""
        done = self.journal.find("sealed.scored")
        if done is not None:
            return done
        if self.journal.find("sealed.opened") is None:
            self.journal.append(
                "sealed.opened", path=self.goal.config.sealed.path if self.goal.config.sealed else ""
            )
        self.tell("opening the sealed test")
        scores: dict[str, list[Mapping[str, Any]]] = {START: [], CANDIDATE: []}
        experiment = self.laboratory.experiments / str(confirmation["experiment"])
        for run_id, arm in confirmation["runs"]:
            line = self.journal.find("sealed.run_scored", run=run_id)
            if line is None:
                started = time.monotonic()
                scoring = await self.laboratory.score_sealed(experiment, run_id)
                line = self.journal.append(
                    "sealed.run_scored",
                    run=run_id,
                    arm=arm,
                    rewards={task: list(each) for task, each in scoring.task_rewards.items()},
                    clusters=dict(scoring.clusters),
                    value=scoring.metrics[self.goal.success.metric].value,
                    seconds=time.monotonic() - started,
                )
            scores[arm].append(line)
        found = sealed_result(scores[START], scores[CANDIDATE], self.goal)
        return self.journal.append("sealed.scored", **found)


def sealed_result(
    start: Sequence[Mapping[str, Any]], winner: Sequence[Mapping[str, Any]], goal: Goal
) -> dict[str, Any]:
    """The claim about the two recipes on the sealed test: one comparison at level 0.05, by seeds and tasks.

    Args:
        start: a line for each run of the start, with the `rewards` of each task.
        winner: likewise of the winner.
        goal: with the metric's direction and the minimum effect.
    """
    sign = 1.0 if goal.success.direction == "max" else -1.0
    tasks = sorted(set.intersection(*(set(line["rewards"]) for line in (*start, *winner))))
    rows = [
        np.array([[fmean(line["rewards"][task]) for task in tasks] for line in side])
        for side in (winner, start)
    ]
    clusters = start[0]["clusters"]
    labels = None
    if clusters:
        known = {
            name: number for number, name in enumerate(sorted({clusters.get(task, task) for task in tasks}))
        }
        labels = np.array([known[clusters.get(task, task)] for task in tasks])
    paired = paired_difference(rows[0].mean(axis=0), rows[1].mean(axis=0), labels, sign=sign)
    claim = recipe_claim(paired, rows[0], rows[1], labels, sign=sign)
    margin = goal.config.objective.minimum_effect
    low, high = claim.interval(ALPHA, (margin, 0.0))
    outcome = "win" if low > margin or (margin == 0 and low > 0) else "loss" if high < 0 else "inconclusive"
    return {
        "outcome": outcome,
        "effect": claim.effect,
        "low": low,
        "high": high,
        "p_value": claim.p_of(margin),
        "margin": margin,
        "tasks": len(tasks),
        "seeds": len(winner),
        "start": float(rows[1].mean()),
        "winner": float(rows[0].mean()),
        "method": claim.method,
    }
