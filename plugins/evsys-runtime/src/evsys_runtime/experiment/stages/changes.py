"""How much of a benchmark's score later stages lost: paired differences over tasks, and the test against the loss allowed."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from evsys.types import ArmResult, LossOutcome
from evsys_runtime.config.model import ContinualConfig
from evsys_runtime.evaluation.metrics import BoundMetric
from evsys_runtime.experiment.verdict.comparison import DRAWS, NOT_A_MEAN, align, largest_difference
from evsys_runtime.experiment.verdict.scores import ArmScore, arm_score
from evsys_stats.claims import claim_p
from evsys_stats.paired import Pair, Paired, paired_difference
from evsys_stats.ranges import Range

__all__ = ["Change", "Limit", "compare_stages"]


@attrs.frozen(kw_only=True, eq=False)
class Change:
    """A benchmark's score after a later stage against that right after its own stage, task by task.

    `pair` has the later score as its arm; it is None, with a `reason`, where the two can't be compared. `sign` is -1 where less is better.
    """

    pair: Pair | None = None
    sign: float = 1.0
    binary: bool = False
    possible: Range | None = None
    reason: str | None = None

    def signed_difference(self) -> Paired | None:
        """The difference, signed so that below 0 is a loss, with its interval and test."""
        if self.pair is None:
            return None
        pair = self.pair
        return paired_difference(
            pair.arm,
            pair.baseline,
            pair.clusters,
            sign=self.sign,
            binary=self.binary and pair.clusters is None,
            draws=DRAWS,
            largest=pair.largest,
        )


@attrs.frozen(kw_only=True)
class Limit:
    """How much of an earlier dataset's score a chain may lose: an amount, or all but a share of what there was."""

    name: str
    value: float

    def __str__(self) -> str:
        return f"{self.name} {self.value:g}"

    @classmethod
    def from_config(cls, continual: ContinualConfig | None) -> Limit | None:
        """The limit of an experiment; None where it has none."""
        if continual is None:
            return None
        if continual.maximum_loss is not None:
            return cls(name="maximum_loss", value=continual.maximum_loss)
        if continual.minimum_retention is not None:
            return cls(name="minimum_retention", value=continual.minimum_retention)
        return None

    def outcome(self, change: Change, difference: Paired, level: float) -> tuple[LossOutcome, float]:
        """The outcome for the limit, with the p-value of the test for a larger loss.

        The null hypothesis of each side is the limit itself. The p-values are the verdict's, which are two-sided,
        so a one-sided error of `level` is never exceeded.
        """
        margin, tested = (
            (self.value, difference) if self.name == "maximum_loss" else (0.0, self._contrast(change))
        )
        p_value = claim_p("worse", margin, tested)
        if p_value <= level:
            return "exceeded", p_value
        return ("within" if claim_p("no_worse", margin, tested) <= level else "undecided"), p_value

    def _contrast(self, change: Change) -> Paired:
        """The margin beyond the required share: `now - share * then`, or `then - share * now` if less is better.

        A difference of means in place of a ratio, whose mean over noisy scores is biased.
        """
        assert change.pair is not None
        now, then = change.pair.arm, change.pair.baseline
        above, below = (now, then) if change.sign > 0 else (then, now)
        ends = change.possible
        largest = (
            None if ends is None else max(ends[1] - self.value * ends[0], self.value * ends[1] - ends[0])
        )
        return paired_difference(
            above,
            self.value * np.asarray(below, dtype=np.float64),
            change.pair.clusters,
            draws=DRAWS,
            largest=largest,
        )


def compare_stages(
    then: Sequence[ArmResult],
    now: Sequence[ArmResult],
    benchmark: str,
    metric: BoundMetric,
    rewards: Range | None,
) -> Change:
    """Compare a benchmark's scores of the same chains after two stages.

    Args:
        then: the runs of the benchmark's own stage, one a seed; several are averaged task by task.
        now: those of the later stage, of the same seeds.
        benchmark: the entry.
        metric: of the entry.
        rewards: the range of its rewards, where verifiers declare it.
    """
    before, after = (
        arm_score(name, results, benchmark, metric.name, metric.task_value)
        for name, results in (("before", then), ("after", now))
    )
    if (reason := _incomparable_reason(before, after)) is not None:
        return Change(reason=reason)
    zero_one = before.zero_one and after.zero_one
    return Change(
        pair=align(
            after, before, after.clusters, largest_difference(metric.possible, after, before, rewards)
        ).pair,
        sign=1.0 if metric.direction == "max" else -1.0,
        binary=before.binary and after.binary,
        possible=metric.possible(rewards or ((0.0, 1.0) if zero_one else None)),
    )


def _incomparable_reason(before: ArmScore, after: ArmScore) -> str | None:
    for score in (before, after):
        if score.invalid is not None or score.value is None:
            return score.invalid or "; ".join(score.reasons) or "not scored"
        if not score.is_mean:
            return NOT_A_MEAN
    if not before.values.keys() & after.values.keys():
        return "no task has a score after both stages"
    return None
