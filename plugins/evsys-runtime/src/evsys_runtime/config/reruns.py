"""Runs in addition to those of the file: an arm retrained with other seeds, or the final model of a run evaluated again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.model import ExperimentConfig
from evsys_runtime.config.plan import ArmConfig

if TYPE_CHECKING:
    from evsys.types import Purpose

__all__ = ["CONTROL", "control_runs", "controls", "rerun_arm", "runs_of", "scoring"]

CONTROL = "control"
"""The suffix of the name of an arm that repeats the baseline."""


def runs_of(arms: Sequence[ArmConfig], name: str, repeat: int) -> list[ArmConfig]:
    """The runs of a compared arm at a repeat: one, or one a stage."""
    compared = (arm for arm in arms if arm.purpose == "candidate")
    return [arm for arm in compared if (arm.name, arm.repeat) == (name, repeat)]


def rerun_arm(
    arms: Sequence[ArmConfig], name: str, repeat: int, purpose: Purpose, *, called: str | None = None
) -> list[ArmConfig]:
    """An arm with the seeds of a repeat of its own, its stages one after another.

    Args:
        arms: all of the plan.
        name: the arm.
        repeat: one that no run of it has.
        purpose: what it is run for.
        called: the name that it gets; by default its own.
    """
    made: dict[str, ArmConfig] = {}
    for arm in runs_of(arms, name, 0):
        after = None if arm.after is None else made[arm.after].run_id
        made[arm.run_id] = attrs.evolve(arm, name=called or name, repeat=repeat, purpose=purpose, after=after)
    return list(made.values())


def scoring(arm: ArmConfig, weights_of: str, *, repeat: int, purpose: Purpose) -> ArmConfig:
    """A run that scores what the run `weights_of` ended with, or for `BASE_MODEL` untrained weights, with the seeds of `repeat`."""
    # Its tree says so as well: it is another run than one that trains with these seeds.
    tree: Mapping[str, object] = {**arm.tree, "weights_of": weights_of}
    return attrs.evolve(
        arm, repeat=repeat, purpose=purpose, weights_of=weights_of, tree=tree, stage=None, after=None
    )


def controls(experiment: ExperimentConfig, arms: Sequence[ArmConfig]) -> list[ArmConfig]:
    """The runs that show how far equal runs of the baseline fall apart; none where the file asks for none.

    Their seeds are those of repeats behind all others. Of untrained weights there is only their sampling to repeat.
    """
    if experiment.control is None or not arms:
        return []
    baseline = experiment.metadata.baseline
    called = f"{baseline}-{CONTROL}"
    made: list[ArmConfig] = []
    for repeat in control_runs(experiment):
        if baseline == BASE_MODEL:
            untrained = attrs.evolve(arms[0], name=called)
            made.append(scoring(untrained, BASE_MODEL, repeat=repeat, purpose="control"))
        else:
            made += rerun_arm(arms, baseline, repeat, "control", called=called)
    return made


def control_runs(experiment: ExperimentConfig) -> range:
    """The repeats whose seeds the control runs have."""
    confirm = experiment.confirm
    # Behind all that a confirmation may come to need.
    confirming = 0 if confirm is None else confirm.most_seeds or experiment.n_repeats
    first = experiment.n_repeats + confirming
    return range(first, first + (0 if experiment.control is None else experiment.control.repeats))
