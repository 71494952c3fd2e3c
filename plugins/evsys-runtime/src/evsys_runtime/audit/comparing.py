"""Each arm alongside the baseline, recomputed from the rewards: sides, paired test, and the same with missing samples at either extreme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from evsys_runtime.audit.evidence import Scoring
from evsys_runtime.audit.paired_tests import BinaryPairs, Estimate, PairedTest, SignFlips
from evsys_runtime.audit.question import BASE_MODEL, Question
from evsys_runtime.audit.recipes import MIN_RUNS, RecipeTest, matrix
from evsys_runtime.audit.sides import ArmRun, Padding, Side, final_scoring, side_of, untrained_scoring

__all__ = [
    "MIN_TASKS",
    "ComparedArm",
    "boundary_p",
    "compare",
    "extremes",
    "on_claimed_side",
    "p_at_minimum_effect",
]

MIN_TASKS = 10
"""Fewer common tasks can't be compared."""


@attrs.frozen(kw_only=True)
class ComparedArm:
    """An arm alongside the baseline: `checkpoint` compares the trained models, `recipe` their recipes, if there are runs enough.

    `invalid` says why the two can't be compared.
    """

    arm: Side
    base: Side
    checkpoint: PairedTest | None = None
    recipe: PairedTest | None = None
    invalid: str | None = None

    @property
    def strongest(self) -> PairedTest | None:
        """The claim that decides the outcome."""
        return self.recipe or self.checkpoint

    @property
    def subject(self) -> str | None:
        """`recipe` or `checkpoint`; None where nothing is compared."""
        return None if self.checkpoint is None else "checkpoint" if self.recipe is None else "recipe"

    @property
    def lost_repeats(self) -> bool:
        """Whether a planned repeat of either side has no score."""
        return any(len(side.runs) < side.planned for side in (self.arm, self.base))

    def on_floor(self, question: Question) -> bool:
        """Whether every task of both sides has the worst score there can be, which says nothing of their difference."""
        worst = question.worst(self.arm.rewards | self.base.rewards)
        values = [*self.arm.values.values(), *self.base.values.values()]
        return worst is not None and all(abs(value - worst) <= 1e-12 for value in values)

    def missing(self) -> tuple[int, int, int]:
        """Samples without a score of the arm and of the baseline, and the tasks that lack one, among tasks that either has a score of."""
        tasks = sorted(self.arm.values.keys() | self.base.values.keys())
        lacks = [
            [max(0, side.drawn - side.samples.get(task, 0)) for side in (self.arm, self.base)]
            for task in tasks
        ]
        return sum(a for a, _ in lacks), sum(b for _, b in lacks), sum(any(each) for each in lacks)


def compare(
    question: Question,
    arms: Mapping[str, Sequence[ArmRun]],
    planned: Mapping[str, int],
    *,
    arms_highest: bool | None = None,
) -> list[ComparedArm]:
    """Compare each arm with the baseline.

    Args:
        question: what is asked.
        arms: the runs of each arm that have a result.
        planned: how many runs of each arm there should be.
        arms_highest: put missing samples at an extreme: those of the arms at the highest reward and those of the
            baseline at the lowest, or the other way round. None leaves them out.
    """
    pads = (None, None) if arms_highest is None else _paddings(question, arms, arms_highest)
    sides = {
        name: _trained_side(
            question, name, runs, planned.get(name, len(runs)), pads[name == question.baseline]
        )
        for name, runs in arms.items()
    }
    names = [name for name in arms if name != question.baseline and question.contrast in (None, name)]
    found = [
        _compare_with_baseline(sides[name], _baseline(question, arms[name], sides, sides[name], pads[1]))
        for name in names
    ]
    tested = [one for one in found if one.invalid is None and one.arm.runs and one.base.runs]
    binary = all(one.arm.binary and one.base.binary and not one.arm.clusters for one in tested)
    return [_test_arm(question, one, binary, len(found)) if one in tested else one for one in found]


def extremes(
    question: Question, arms: Mapping[str, Sequence[ArmRun]], planned: Mapping[str, int]
) -> list[list[ComparedArm]]:
    """The comparisons with missing samples against the arms, and in favour of them."""
    return [compare(question, arms, planned, arms_highest=highest) for highest in (False, True)]


def _trained_side(
    question: Question, name: str, runs: Sequence[ArmRun], planned: int, padding: Padding | None
) -> Side:
    scored = [(run.run_id, final_scoring(run, question.benchmark)) for run in runs]
    return _side(question, name, scored, planned, padding)


def _side(
    question: Question,
    name: str,
    scored: Sequence[tuple[str, Scoring | None]],
    planned: int,
    padding: Padding | None,
) -> Side:
    return side_of(
        name,
        scored,
        question.metric,
        question.task_metric,
        planned=planned,
        left_out=question.left_out,
        padding=padding,
    )


def _baseline(
    question: Question,
    runs: Sequence[ArmRun],
    sides: Mapping[str, Side],
    arm: Side,
    padding: Padding | None,
) -> Side:
    """The baseline's side: an arm, or the weights that the counted runs started from, once if they all share their rewards."""
    if question.baseline != BASE_MODEL:
        return sides.get(question.baseline) or Side(name=question.baseline)
    counted = [run for run in runs if run.run_id in arm.runs] or runs
    scored = [(run.run_id, untrained_scoring(run, question.benchmark)) for run in counted]
    rewards = [scoring.rewards for _, scoring in scored if scoring is not None]
    if rewards and all(other == rewards[0] for other in rewards):
        scored = [next(one for one in scored if one[1] is not None)]
    return _side(question, BASE_MODEL, scored, len(scored), padding)


def _compare_with_baseline(arm: Side, base: Side) -> ComparedArm:
    common, invalid = arm.values.keys() & base.values.keys(), None
    different = {arm.copies.get(task, task) for task in common}
    if arm.invalid or base.invalid:
        invalid = "a scoring has too few scores"
    elif arm.runs and base.runs and len(arm.hashes | base.hashes) > 1:
        invalid = "the benchmark or its verifier differs"
    elif arm.runs and base.runs and len(different) < MIN_TASKS:
        invalid = f"fewer than {MIN_TASKS} different common tasks"
    return ComparedArm(arm=arm, base=base, invalid=invalid)


def _test_arm(question: Question, one: ComparedArm, binary: bool, family: int) -> ComparedArm:
    arm, base = one.arm, one.base
    tasks = sorted(arm.values.keys() & base.values.keys())
    differences = {task: question.sign * (arm.values[task] - base.values[task]) for task in tasks}
    largest = question.largest_difference(arm.rewards | base.rewards)
    checkpoint: PairedTest
    if binary:
        checkpoint = BinaryPairs(np.array([*differences.values()]))
    else:
        checkpoint = SignFlips(differences, arm.clusters, largest=largest, draws=question.draws)
    trained = question.baseline != BASE_MODEL
    scores = matrix(arm.by_run, tasks)
    against = matrix(base.by_run if trained else (base.values,), tasks)
    recipe = None
    enough = len(scores) >= MIN_RUNS and (not trained or len(against) >= MIN_RUNS)
    if enough or question.deviation is not None:
        recipe = RecipeTest(
            checkpoint,
            scores,
            against,
            [f"cluster {arm.clusters[task]}" if task in arm.clusters else f"task {task}" for task in tasks],
            sign=question.sign,
            level=question.level / max(1, family),
            largest=largest,
            deviation=None if enough else question.deviation,
            trained=trained,
        )
    return attrs.evolve(one, checkpoint=checkpoint, recipe=recipe)


def _paddings(
    question: Question, arms: Mapping[str, Sequence[ArmRun]], arms_highest: bool
) -> tuple[Padding, Padding]:
    """The padding of the arms and that of the baseline: over the range that verifiers declare, else 0 to 1, else what was seen."""
    scorings = []
    for run in (run for runs in arms.values() for run in runs):
        scorings.append(final_scoring(run, question.benchmark))
        if question.baseline == BASE_MODEL:
            scorings.append(untrained_scoring(run, question.benchmark))
    rewards = [s.rewards for s in scorings if s is not None and s.tree["status"] == "completed"]
    seen = {reward for one in rewards for values in one.values() for reward in values}
    ends = (0.0, 1.0) if seen <= {0.0, 1.0} else (min(seen), max(seen))
    padding = Padding(
        tasks=frozenset(task for one in rewards for task, values in one.items() if values),
        rewards=question.rewards or ends,
        highest=arms_highest,
    )
    return padding, attrs.evolve(padding, highest=not arms_highest)


def p_at_minimum_effect(test: PairedTest, least: float) -> Estimate:
    """The p-value of an effect no larger than `least` on the side of the one seen; 1 where it isn't larger."""
    if least == 0:
        return test.at_zero()
    if abs(test.effect) <= least:
        return Estimate(1.0)
    return test.p(least if test.effect > 0 else -least)


def boundary_p(claim: str, margin: float, test: PairedTest) -> Estimate:
    """The p-value of a claim's own boundary, on either side of it."""
    if claim == "better":
        return test.p(margin)
    if claim == "equal":
        one, other = test.p(margin), test.p(-margin)
        return Estimate(max(one.value, other.value), max(one.error, other.error))
    return test.p(-margin)


def on_claimed_side(claim: str, margin: float, effect: float) -> bool:
    """Whether an effect is what is claimed."""
    if claim == "better":
        return effect > margin
    if claim == "equal":
        return abs(effect) < margin
    return effect > -margin if claim == "no_worse" else effect < -margin
