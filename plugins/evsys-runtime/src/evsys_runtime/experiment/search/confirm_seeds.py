"""How many fresh seeds confirm a winner where the file gives no number: as many as the known noise asks for."""

from __future__ import annotations

from collections.abc import Callable

from evsys.types import Comparison, RunDeviation
from evsys_runtime.config.model import FEWEST_SEEDS, MOST_SEEDS, SEEDS_BY_DEFAULT
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.run_deviation import deviation_words
from evsys_runtime.experiment.verdict.tables import signed_text
from evsys_stats.power import fewest_runs
from evsys_stats.recipe import MIN_SEEDS

__all__ = ["UNKNOWN_NOISE", "confirm_seeds"]

UNKNOWN_NOISE = "the default, since no run-to-run deviation of similar runs is on record"


def confirm_seeds(
    question: Question,
    winner: Comparison,
    deviation: RunDeviation | None,
    *,
    sides: int,
    tasks: int,
    affordable: Callable[[int], bool],
) -> tuple[int, str]:
    """The number of seeds, and why it is that many.

    Args:
        question: what the confirmation asks, at its level.
        winner: how the winner did against the baseline.
        deviation: how far runs of similar recipes differ; None where that isn't on record.
        sides: 2 if the baseline is trained as well, else 1.
        tasks: of the entry that decides.
        affordable: whether the budget pays for so many seeds.
    """
    if deviation is None:
        return SEEDS_BY_DEFAULT, UNKNOWN_NOISE
    expected = winner.effect if winner.shrunken_effect is None else winner.shrunken_effect
    distance = (expected or 0.0) - question.margin
    between = max(0.0, deviation.standard_deviation**2 - deviation.sampling_deviation**2)
    by_task = (winner.standard_error or 0.0) ** 2
    if winner.claim == "recipe":  # the runs' own deviation is a part of that error
        by_task = max(0.0, by_task - sides * between / max(1, winner.n_seeds))

    def freedom(runs: int) -> float:
        own = sides * (runs - 1)
        return own + deviation.freedom if runs < MIN_SEEDS else own

    needed = fewest_runs(
        distance,
        by_run=sides * between,
        by_task=by_task * winner.n_tasks / tasks,
        freedom=freedom,
        level=question.level,
        among=range(FEWEST_SEEDS, MOST_SEEDS + 1),
    )
    wanted = MOST_SEEDS if needed is None else needed
    seeds = next((n for n in range(wanted, FEWEST_SEEDS, -1) if affordable(n)), FEWEST_SEEDS)
    shown = "as many as show" if needed is not None else "the most there can be, which is too few to show"
    limited = "" if seeds == wanted else f"; the budget doesn't pay for {wanted}"
    words = f"{shown} the expected effect of {signed_text(expected or 0.0)} with 80 % power"
    return seeds, f"{words}{limited}; {deviation_words(deviation)}"
