"""How far equal runs of the baseline fall apart, and what that leaves of a win: an effect that equal runs show as well, is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from evsys.types import ArmResult, Comparison, NoiseFloor
from evsys_record import final_scoring, untrained_scoring
from evsys_record.scorings import value_of
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.tables import number, signed_text
from evsys_stats.student import studentized_maximum

__all__ = [
    "above_noise",
    "equal_runs",
    "floor_of",
    "held_by_noise",
    "noise_floor",
    "noise_words",
    "runs_above",
    "with_limit",
]


def equal_runs(question: Question, results: Sequence[ArmResult]) -> dict[str, float]:
    """The scores of the baseline's runs and of those that repeat it; of untrained weights one a seed that they were sampled with."""
    found: dict[str, float] = {}
    untrained = question.baseline == BASE_MODEL
    for result in results:
        mine = result.purpose == "control" or (
            result.purpose == "candidate" and (untrained or result.arm == question.baseline)
        )
        if not mine:
            continue
        scored = (untrained_scoring if untrained else final_scoring)(result, question.benchmark)
        value = value_of(scored, question.metric)
        name = f"{BASE_MODEL}-s{result.repeat}" if untrained else result.run_id
        if value is not None:
            found.setdefault(name, value)
    return found


def noise_floor(question: Question, results: Sequence[ArmResult]) -> NoiseFloor | None:
    """The noise of the control runs; None if there are none, or nothing to compare them with."""
    runs = equal_runs(question, results)
    controlled = any(result.purpose == "control" for result in results)
    return _floor(question, runs) if controlled and len(runs) > 1 else None


def _floor(question: Question, runs: Mapping[str, float]) -> NoiseFloor:
    values = list(runs.values())
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return NoiseFloor(
        baseline=question.baseline,
        metric=question.name,
        runs=dict(runs),
        largest=max(values) - min(values),
        standard_deviation=math.sqrt(2.0 * variance),
    )


def floor_of(noise: NoiseFloor, runs: int, baseline_runs: int) -> float:
    """The noise floor of the effect of a mean over this many runs against one over that many of the baseline.

    A difference of single runs has twice the variance s² of one; that of means over n and m runs has s² (1/n +
    1/m).
    """
    return (noise.limit or noise.largest) * math.sqrt(
        (1.0 / max(1, runs) + 1.0 / max(1, baseline_runs)) / 2.0
    )


def with_limit(noise: NoiseFloor, arms: int, level: float) -> NoiseFloor:
    """The noise floor with its limit: none of `arms` equal arms of one run exceeds it, with probability 1 - `level`.

    Runs of the arms are taken to differ as those of the baseline do, whose deviation is estimated from few runs.
    """
    multiple = studentized_maximum(arms, len(noise.runs) - 1, level)
    return attrs.evolve(noise, limit=max(noise.largest, multiple * noise.standard_deviation))


def above_noise(question: Question, comparison: Comparison) -> Comparison:
    """The comparison, `inconclusive` where it is a win or a loss no larger than equal runs fall apart."""
    noise = _noise_of(question)
    if noise is None or comparison.outcome not in ("win", "loss") or not _within(noise, comparison):
        return comparison
    reason = "; ".join(filter(None, (comparison.reason, noise_words(noise, comparison))))
    return attrs.evolve(comparison, outcome="inconclusive", reason=reason)


def held_by_noise(question: Question, comparison: Comparison) -> bool:
    """True where a comparison would be a win if equal runs didn't fall apart as far."""
    noise = _noise_of(question)
    effect, p = comparison.effect, comparison.p_corrected
    if noise is None or comparison.outcome != "inconclusive" or effect is None or p is None:
        return False
    return p <= question.level and effect > 0 and _within(noise, comparison)


def _noise_of(question: Question) -> NoiseFloor | None:
    """A floor on another metric or entry says nothing of this one."""
    noise = question.noise
    return noise if noise is not None and noise.metric == question.name else None


def _within(noise: NoiseFloor, comparison: Comparison) -> bool:
    return comparison.effect is not None and abs(comparison.effect) <= floor_of(noise, *_runs(comparison))


def _runs(comparison: Comparison) -> tuple[int, int]:
    """Those of the arm and of the baseline."""
    return comparison.n_seeds, comparison.n_baseline_seeds


def noise_words(noise: NoiseFloor, comparison: Comparison) -> str:
    """States that an effect is within the noise, with the numbers."""
    runs, baseline_runs = _runs(comparison)
    of = "" if noise.experiment_id is None else f" in {noise.experiment_id}"
    floor = number(floor_of(noise, runs, baseline_runs))
    limit = "" if noise.limit is None else f", so two of them may differ by {number(noise.limit)}"
    means = "" if runs == baseline_runs == 1 else f", means of {runs} of them {floor}"
    if runs != baseline_runs:
        means = f", a mean of {runs} and one of {baseline_runs} of them {floor}"
    return (
        f"{signed_text(comparison.effect)} is within the noise: {len(noise.runs)} equal runs of {noise.baseline}{of} "
        f"fall up to {number(noise.largest)} apart{limit}{means}"
    )


def runs_above(noise: NoiseFloor, effect: float) -> int:
    """The runs a side over whose means an effect exceeds the noise floor."""
    return math.floor(((noise.limit or noise.largest) / abs(effect)) ** 2 * (1 + 1e-9)) + 1
