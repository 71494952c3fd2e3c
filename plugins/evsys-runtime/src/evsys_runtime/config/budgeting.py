"""Checks a budget before anything is spent: whether it pays for the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evsys_runtime.config.model import BudgetConfig, ExperimentConfig, RunConfig

__all__ = ["budget_warnings", "first_arm_warnings", "known_steps", "runs_to_confirm"]


def known_steps(run: RunConfig) -> int | None:
    """The optimiser steps that a run's file asks for; None where they depend on its data."""
    steps = run.algorithm.params.get("steps")
    return steps if isinstance(steps, int) and not isinstance(steps, bool) else None


def budget_warnings(
    budget: BudgetConfig | None, arms: Sequence[tuple[str, RunConfig]], repeats: int
) -> Iterator[str]:
    """The warnings about a budget.

    Args:
        budget: the file's.
        arms: the arms by name.
        repeats: how often each of them is run.
    """
    if budget is None:
        return
    planned = len(arms) * repeats
    if budget.arms is not None and budget.arms < planned:
        yield f"budget.arms is {budget.arms}, so {planned - budget.arms} of the {planned} planned runs won't be started"
    if budget.steps is None:
        return
    known = [(steps, name) for name, run in arms if (steps := known_steps(run)) is not None]
    if not known:
        return
    fewest, name = min(known)
    whole = sum(steps for steps, _ in known) * repeats
    if fewest > budget.steps:
        yield f"budget.steps is {budget.steps}, which doesn't pay for one arm: {name!r} alone takes {fewest} steps"
    elif whole > budget.steps:
        yield f"budget.steps is {budget.steps}, and the planned runs take {whole} steps; what it doesn't pay for won't be started"


def runs_to_confirm(experiment: ExperimentConfig) -> tuple[int, int]:
    """How many runs a winner is retrained in, and how many evaluate it again, when it is confirmed."""
    seeds = 0 if experiment.confirm is None else experiment.confirm.expected_seeds
    return seeds, 0 if seeds else experiment.confirming_repeats


def first_arm_warnings(experiment: ExperimentConfig, shortest: RunConfig) -> Iterator[str]:
    """The warnings if a search can't propose its first arm, since the budget doesn't cover it and the confirmation
    of a winner.
    """
    budget, (anew, scored) = experiment.budget, runs_to_confirm(experiment)
    if budget is None:
        return
    runs = experiment.n_repeats + anew
    if budget.arms is not None and budget.arms < runs + scored:
        yield (
            f"budget.arms is {budget.arms}, and one arm of the search takes {runs + scored} runs with its confirmation, so "
            "none will be proposed; raise it, or leave the confirmation out: confirm: null"
        )
    steps = known_steps(shortest)
    if budget.steps is not None and steps is not None and budget.steps < steps * runs:
        yield (
            f"budget.steps is {budget.steps}, and the shortest arm of the search takes {steps * runs} steps with its "
            "confirmation, so none will be proposed; raise it, or leave the confirmation out: confirm: null"
        )
