"""Whether the budget of an experiment pays for what is planned: the training and the scoring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evsys_runtime.experiment.estimate.results import PlannedArm, PlannedConfirm, PlannedLimit, PlannedScoring

__all__ = ["planned_limits"]

_FIELDS: dict[str, tuple[str, str | None]] = {
    "usd": ("cost_usd", "cost_usd"),
    "tokens": ("trained_tokens", "tokens"),
    "wall_seconds": ("seconds", "seconds"),
    "steps": ("steps", None),
    "arms": ("runs", None),
}
"""The fields of a training and of a scoring that each limit counts; a scoring takes no steps and starts no runs."""


def planned_limits(
    limits: Mapping[str, float | None],
    arms: Sequence[PlannedArm],
    scorings: Sequence[PlannedScoring],
    confirm: PlannedConfirm | None,
    concurrent: int,
) -> Iterator[PlannedLimit]:
    """Each limit set, against what is planned.

    Args:
        limits: of the experiment, or what its project leaves; None for no limit.
        arms: what a run of each arm takes.
        scorings: what all scorings of each entry take.
        confirm: what confirming a winner takes on top.
        concurrent: runs at once, which share the seconds.
    """
    for name, (trained, scored) in _FIELDS.items():
        limit = limits.get(name)
        if limit is None:
            continue
        training = [_total_of_runs(arm, trained) for arm in arms]
        scoring = [] if scored is None else [_total_of_evaluations(each, scored) for each in scorings]
        amounts = [*training, *scoring]
        at_once = concurrent if name == "wall_seconds" else 1
        known = sum(amount for amount in amounts if amount is not None) / at_once
        yield PlannedLimit(
            name=name,
            limit=limit,
            training=_sum_known(training, at_once),
            scoring=_sum_known(scoring, at_once),
            confirmation=None if confirm is None else getattr(confirm, trained),
            fits=False if known > limit else None if None in amounts else True,
        )


def _total_of_runs(arm: PlannedArm, field: str) -> float | None:
    amount = 1 if field == "runs" else getattr(arm, field)
    return 0.0 if arm.made == 0 else None if amount is None else amount * arm.made


def _total_of_evaluations(scoring: PlannedScoring, field: str) -> float | None:
    """Nothing for an entry kept for a confirmation."""
    return 0 if scoring.scorings == 0 else getattr(scoring, field)


def _sum_known(amounts: Sequence[float | None], at_once: int) -> float | None:
    """The sum of the known amounts; None if there are some and none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) / at_once if known or not amounts else None
