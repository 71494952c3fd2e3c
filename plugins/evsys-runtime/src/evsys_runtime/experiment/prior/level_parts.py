"""The part of its level that a look keeps if its scores could have ended or selected what they decide about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import pvariance
from typing import TYPE_CHECKING

from evsys.types import ArmResult, EvaluationResult
from evsys_record import final_scoring
from evsys_record.proofs import proof_name
from evsys_record.scorings import THROUGH
from evsys_runtime.config.budgeting import known_steps
from evsys_runtime.config.model.benchmark import LEAST_TEMPERATURE
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.data.task_contents import content_hashes
from evsys_runtime.experiment.prior.final_tests import entry_of
from evsys_stats.alpha_spending import parts_of_selection

if TYPE_CHECKING:
    from evsys_runtime.evaluation.benchmarks import BoundBenchmark
    from evsys_runtime.experiment.state.session import Session

__all__ = ["parts_of_level", "repeated_share"]


def parts_of_level(session: Session, entry: str, results: Sequence[ArmResult], level: float) -> int:
    """By how much the level is divided where a listener, or a request, ended a run by the scores of `entry`; 1 if none did.

    The scoring at which it ended decides then, unless a checkpoint was selected and proved on other samples. Each planned
    scoring has an equal part of the level. If it isn't known how many there would have been, the k-th has a part of
    1 / (k (k + 1)), and the parts of any number sum to at most 1. The same goes for repeats: where later ones of an arm
    were never begun on request, any of them could have been the last.
    """
    planned = {arm.run_id: _planned_scorings(session, arm, entry) for arm in session.plan.arms}
    parts = [1]
    for result in results:
        scored = {each.step for each in result.evaluations if each.benchmark == entry and each.model is None}
        proved = any(each.benchmark == proof_name(entry) for each in result.evaluations)
        ended = result.status in THROUGH
        count, most = len(scored - {0}), planned.get(result.run_id)
        if result.run is not None and result.run.stop_reason and ended and not proved and count:
            parts.append(count * (count + 1) if most is None else max(count, most))
    selecting = _parts_of_selection(session, entry, results, level)
    return max(*parts, selecting) * _repeats_to_end_at(session, results)


def _parts_of_selection(session: Session, entry: str, results: Sequence[ArmResult], level: float) -> int:
    """By how much the level is divided since the deciding tasks selected a checkpoint as well, and gave the same answers; 1 if they didn't."""
    known = {one.name: one for one in session.benchmarks}
    by, decides = known.get(session.selection.benchmark), known[entry]
    if by is None or session.selection.proof == "held_out_tasks":
        return 1
    if by is not decides and not entry_of(by).is_same(entry_of(decides)):
        return 1
    fixed = min(by.sampling.temperature, decides.sampling.temperature) < LEAST_TEMPERATURE
    parts = [1]
    for arm in results:
        selected = None if arm.run is None else arm.run.selected_checkpoint
        scored = {e.step: e for e in arm.evaluations if e.benchmark == by.name and not e.model and e.step}
        deciding = final_scoring(arm, entry)
        if fixed and by is not decides:
            parts.append(len(scored))
        elif selected is not None and selected.step in scored and deciding is not None:
            looks = {step: _by_content(by, one) for step, one in scored.items()}
            repeated = repeated_share(looks, selected.step, _by_content(decides, deciding))
            parts.append(parts_of_selection(len(scored), repeated, level))
    return max(parts)


def _by_content(bound: BoundBenchmark, scoring: EvaluationResult) -> dict[str, float]:
    """The mean reward on each task, by what the task asks."""
    hashes = content_hashes(bound.tasks)
    return {
        hashes.get(task, task): math.fsum(rewards) / len(rewards)
        for task, rewards in scoring.task_rewards.items()
        if rewards
    }


def repeated_share(
    looks: Mapping[int, Mapping[str, float]], selected: int, again: Mapping[str, float]
) -> float:
    """How much of what sets the scores of a selected checkpoint apart from those of the others comes again, from 0 to 1.

    The variance over tasks between two scorings of the selected checkpoint is that of sampling. The variance between it and another one has
    that of the checkpoints besides. The share is 1 less the ratio of the two; 0 if all checkpoints have the same scores, since none is then
    better by luck.

    Args:
        looks: the score on each task, by step.
        selected: the step of the selected checkpoint.
        again: its scores that decide.
    """
    chosen = looks[selected]
    between = [
        variance
        for step, other in looks.items()
        if step != selected and (variance := _variance(chosen, other)) is not None
    ]
    sampling = _variance(chosen, again)
    if not between or sampling is None or not any(between):
        return 0.0
    return min(1.0, max(0.0, 1.0 - sampling / (math.fsum(between) / len(between))))


def _variance(one: Mapping[str, float], other: Mapping[str, float]) -> float | None:
    """The variance of the differences on common tasks; None if there are fewer than two."""
    differences = [value - other[task] for task, value in one.items() if task in other]
    return pvariance(differences) if len(differences) > 1 else None


def _repeats_to_end_at(session: Session, results: Sequence[ArmResult]) -> int:
    """How many repeats are planned of an arm of which a request let some begin and others not; 1 if there is none."""
    begun, planned = {False: set[str](), True: set[str]()}, Counter(arm.name for arm in session.plan.arms)
    for result in results:
        if result.status == "stopped":
            begun[bool(result.evaluations)].add(result.arm)
        elif result.status == "completed":
            begun[True].add(result.arm)
    return max((planned[arm] for arm in begun[True] & begun[False]), default=1)


def _planned_scorings(session: Session, arm: ArmConfig, entry: str) -> int | None:
    """How often a run is scored on an entry if nothing ends it early; None if its steps aren't known beforehand."""
    steps = known_steps(arm.run)
    every = next((one.run_every for one in session.benchmarks if one.name == entry), None)
    return None if steps is None else 1 if every is None else math.ceil(steps / every)
