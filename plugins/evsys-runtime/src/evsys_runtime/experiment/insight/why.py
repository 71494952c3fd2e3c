"""`evsys why`: the numbers behind a verdict, what weakens it, what failed where, and what changed against the parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import attrs

from evsys.errors import ConfigError, StoreError
from evsys.types import ArmResult, Comparison, Conclusion, EvaluationResult, NoiseFloor
from evsys_record import PastExperiment, Question
from evsys_record.differing import differences
from evsys_record.experiment_names import run_called
from evsys_record.history import find_experiments, past_experiment
from evsys_record.index import Index
from evsys_record.looks import Ledger
from evsys_record.past import Shown, ShownRun
from evsys_record.show import show_experiment
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord, distance
from evsys_runtime.experiment.insight.failures import BAD, failure_classes
from evsys_runtime.experiment.insight.results import FailureClass, Why, WhyArm, WhyFailed, WhyParent
from evsys_runtime.experiment.verdict.noise import noise_words
from evsys_runtime.experiment.verdict.selection import selection_lines
from evsys_runtime.experiment.verdict.tables import number

__all__ = ["explain", "outcome_words"]

_BAD = frozenset({*BAD, "crashed"})
_REPORTED = ("leaked", "question_changed")
"""Marks that the conclusion itself reports at length, in its warnings or without the flagged tasks."""

_NO_CONCLUSION = {
    "running": "it is still running",
    "crashed": "its process ended without a message; `evsys resume` continues it",
    "cancelled": "it was cancelled; `evsys resume` continues it",
}


def explain(index: Index, experiment_id: str, arm: str | None = None) -> Why:
    """Why an experiment, or an arm or run of it, ended as it did.

    Args:
        index: of the experiments on record, as of now.
        experiment_id: the experiment.
        arm: an arm, or a run, by its name or how that begins.

    Raises:
        ConfigError: it has no such arm.
        StoreError: the record can't be read.
    """
    found = show_experiment(index, experiment_id)
    past = found.experiment
    if past.problem is not None:
        raise StoreError(f"{experiment_id} can't be read: {past.problem}")
    named = None if arm is None else _arm_called(arm, found)
    conclusion = found.conclusion or Conclusion(
        verdict=None, reason=_NO_CONCLUSION.get(past.status, "there is no conclusion")
    )
    level = ALPHA if conclusion.procedure is None else conclusion.procedure.level
    minimum, noise = conclusion.minimum_effect or 0.0, conclusion.noise_floor
    told = [
        WhyArm(comparison=each, says=outcome_words(each, minimum, level, noise))
        for each in conclusion.comparisons
        if named in (None, each.arm)
    ]
    on_record = cache(lambda: ArmsOnRecord.from_index(index))
    again = conclusion.confirmed
    runs = [run for run in found.runs if named in (None, run.past.arm)]
    parent = None if past.parent is None else past_experiment(index, past.parent)
    return Why(
        experiment_id=experiment_id,
        arm=named,
        status=past.status,
        verdict=conclusion.verdict,
        reason=conclusion.reason,
        metric=conclusion.metric,
        direction=conclusion.direction,
        baseline=conclusion.baseline,
        minimum_effect=conclusion.minimum_effect,
        subject=past.subject,
        arms=tuple(told),
        confirmed=None
        if again is None
        else WhyArm(
            comparison=again.comparison,
            says=outcome_words(again.comparison, minimum, level, noise),
        ),
        settle=conclusion.settle,
        checkpoints=tuple(_checkpoints(conclusion, runs)),
        weakened=tuple(dict.fromkeys(_weakness_lines(found, conclusion, runs))),
        failed=tuple(_failed_runs(index, runs, on_record)),
        parent=past.parent,
        **({} if parent is None else _parent_fields(parent)),
        changed=() if parent is None else tuple(_parent_comparisons(index, past, parent, named, on_record())),
        looks=Ledger.of(index).series_of(experiment_id),
        marks=past.marks,
    )


def _parent_fields(parent: PastExperiment) -> dict[str, Any]:
    names = ("verdict", "retracted", "subject", "marks")
    return {f"parent_{name}": getattr(parent, name) for name in names}


def _checkpoints(conclusion: Conclusion, runs: Sequence[ShownRun]) -> Iterator[str]:
    """How checkpoints were selected, and the selected ones of some runs."""
    selection = conclusion.selection
    if selection is not None:
        named = {run.past.run_id for run in runs}
        selected = {run_id: one for run_id, one in selection.runs.items() if run_id in named}
        yield from selection_lines(attrs.evolve(selection, runs=selected))


def _arm_called(text: str, found: Shown) -> str:
    runs = {run.past.run_id: run.past.arm for run in found.runs}
    arms = list(dict.fromkeys(arm for arm in runs.values() if arm is not None))
    if text in arms:
        return text
    named = runs[run_called(text, list(runs), found.experiment.experiment_id)]
    if named is None:
        raise ConfigError(f"run {text!r} doesn't say which arm it is of")
    return named


def outcome_words(each: Comparison, minimum: float, level: float, noise: NoiseFloor | None = None) -> str:
    """The reasons of an outcome."""
    if each.effect is None:
        return each.reason or "it has no score"
    p = each.p_corrected if each.p_corrected is not None else each.p_value
    chance = (
        "" if p is None else f"p {p:.2g} after correction, {'at most' if p <= level else 'above'} {level:g}"
    )
    bounds = (
        "no interval"
        if each.low is None or each.high is None
        else f"[{number(each.low)}, {number(each.high)}]"
    )
    by = f" by more than the minimum_effect {minimum:g}" if minimum else ""
    words: Mapping[str, str] = {
        "win": f"better{by}: {chance}",
        "loss": f"worse{by}: {chance}",
        "tie": f"the interval {bounds} lies within the minimum_effect of {minimum:g} on both sides",
    }
    if each.outcome in words:
        return words[each.outcome]
    if p is not None and p <= level:
        if noise is not None and abs(each.effect) >= minimum:
            return f"significant ({chance}), but {noise_words(noise, each)}"
        return f"significant ({chance}), but {bounds} doesn't show on which side of the minimum_effect {minimum:g} it lies"
    return _undecided_words(each, minimum, bounds, chance)


def _undecided_words(each: Comparison, minimum: float, bounds: str, chance: str) -> str:
    """Why a comparison is open, and which effects its design would have shown."""
    aim = f"of at least the minimum_effect {minimum:g}" if minimum else "worth having"
    seen = each.smallest_detectable_effect
    corrected = None not in (each.p_value, each.p_corrected) and each.p_value != each.p_corrected
    alone = ", of one arm alone" if corrected else ""
    limit = "" if seen is None else f"; this design sees effects from {number(seen)} on{alone}"
    apart = each.low is not None and each.high is not None and not each.low <= 0 <= each.high
    open_ = (
        f"{bounds} excludes no effect, but"
        if apart and not minimum
        else f"{bounds} doesn't show on which side of the minimum_effect {minimum:g} it lies:"
        if apart
        else f"{bounds} includes both 0 and effects {aim}:"
    )
    return f"{open_} {chance}{limit}" if chance else f"{open_.rstrip(':')}{limit}"


def _weakness_lines(found: Shown, conclusion: Conclusion, runs: Sequence[ShownRun]) -> Iterator[str]:
    past = found.experiment
    yield from (mark.says for mark in past.marks if mark.kind not in _REPORTED)
    for earlier in found.superseded:
        yield f"it had concluded {earlier.verdict or 'nothing'} before it was resumed ({earlier.file})"
    without = conclusion.without_flagged
    if without is not None:
        yield f"without {len(without.tasks)} tasks found in training rows: {without.verdict}, {without.reason}"
    for benchmark, looks in conclusion.test_looks.items():
        if looks > len(found.runs) + 1:  # each run's end once, and the untrained weights
            yield f"the test entry {benchmark} was looked at {looks} times by {len(found.runs)} runs"
    # Tasks that don't count, looks of earlier experiments and a changed question are among the warnings.
    yield from conclusion.warnings
    yield from (warning for run in runs if run.result is not None for warning in _warnings(run.result))


def _warnings(result: ArmResult) -> Iterator[str]:
    yield from result.warnings
    yield from () if result.run is None else result.run.warnings


def _failed_runs(
    index: Index, runs: Sequence[ShownRun], on_record: Callable[[], ArmsOnRecord]
) -> Iterator[WhyFailed]:
    """Runs, and scorings of runs trained."""
    bad = [run for run in runs if run.past.status in _BAD or run.past.diverged]
    classes = failure_classes(index, on_record()) if bad else ()
    for run in bad:
        past = run.past
        failure = None if run.result is None else run.result.failure
        status = "diverged" if past.status == "completed" else past.status
        same = _class_of(classes, status, past.boundary, past.error_type, past.experiment_id)
        where = "/".join(part for part in (past.boundary, past.error_type) if part)
        region = None if same is None else same.region
        yield WhyFailed(
            run_id=past.run_id,
            status=status,
            way=f"{status} {where}".strip(),
            message=past.failure
            or ("the loss rose and stayed up" if past.diverged else "it says nothing more"),
            place=past.place,
            hint=None if failure is None else failure.hint,
            steps=past.steps,
            runs_on_record=1 if same is None else same.runs,
            region=None if region is None or region.completed_inside else str(region),
            known_bad=region is not None and region.known_bad,
        )

    for run in runs:
        yield from () if run.result is None else _scorings(run.result)


def _scorings(result: ArmResult) -> Iterator[WhyFailed]:
    for each in result.evaluations:
        failure = each.failure
        if each.status != "missing" and failure is not None:
            yield WhyFailed(
                run_id=result.run_id,
                status=result.status,
                way=f"scoring of {each.benchmark} at step {each.step} {_ending(each)} {failure.boundary}/{failure.error_type}",
                message=failure.message,
                place=failure.place,
                hint=failure.hint,
                steps=each.step,
                runs_on_record=1,
            )


def _ending(evaluation: EvaluationResult) -> str:
    failed = ", ".join(evaluation.failed_metrics)
    return evaluation.status if evaluation.status != "completed" else f"failed for {failed}"


def _class_of(
    classes: Sequence[FailureClass],
    status: str,
    boundary: str | None,
    error_type: str | None,
    experiment_id: str,
) -> FailureClass | None:
    return next(
        (
            each
            for each in classes
            if (each.status, each.boundary, each.error_type) == (status, boundary, error_type)
            and experiment_id in each.experiments
        ),
        None,
    )


def _parent_comparisons(
    index: Index,
    past: PastExperiment,
    parent: PastExperiment,
    named: str | None,
    on_record: ArmsOnRecord,
) -> Iterator[WhyParent]:
    """Each arm alongside the nearest of the parent's."""
    numbers = {folder: number for number, folder in find_experiments(index, Question())}
    own, other = (
        {
            arm: on_record.config(config)
            for experiment, arm, config in on_record.arms
            if experiment == numbers.get(each.experiment_id)
        }
        for each in (past, parent)
    )
    if not other:
        return
    for arm, config in own.items():
        if named not in (None, arm):
            continue
        nearest = min(other, key=lambda name: (_distance(other[name], config), name != arm, name))
        yield WhyParent(
            arm=arm,
            parent_arm=nearest,
            differences=differences(other[nearest], config, text=str),
            effect=_effect(past, arm),
            parent_effect=_effect(parent, nearest),
        )


def _distance(one: Mapping[str, str], other: Mapping[str, str]) -> float:
    paths = one.keys() | other.keys()
    return sum(
        distance(one.get(path), other[path]) if path in other else 1.0
        for path in paths
        if one.get(path) != other.get(path)
    )


def _effect(past: PastExperiment, arm: str) -> float | None:
    return next((each.effect for each in past.comparisons if each.arm == arm), None)
