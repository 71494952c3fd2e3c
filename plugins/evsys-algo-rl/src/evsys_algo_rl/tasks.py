"""Tasks before anything is sampled: can each of them be judged?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evsys import current_registry
from evsys.errors import DataError
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.evaluation.verify import bound_verifiers, unjudgeable

if TYPE_CHECKING:
    from evsys.types import HarborTask, RunContext

__all__ = ["check_tasks"]

MOST_TOLD = 5


def check_tasks(ctx: RunContext) -> None:
    """Look up every verifier that the run's tasks name, and let it look at what it is to expect.

    Raises:
        DataError: some tasks can't be judged; names the first of them and what is wrong.
    """
    if not isinstance(ctx.rollouts, TrainingRollouts):  # others may judge in their own way
        return
    tasks: Iterable[HarborTask] = ctx.data
    verifiers = bound_verifiers(tasks, current_registry())
    complaints = ((task.task_id, unjudgeable(task, verifiers)) for task in tasks)
    wrong = [f"task {task_id!r}: {complaint}" for task_id, complaint in complaints if complaint is not None]
    if not wrong:
        return
    more = f", and {len(wrong) - MOST_TOLD} more" if len(wrong) > MOST_TOLD else ""
    raise DataError(f"tasks that can't be judged: {'; '.join(wrong[:MOST_TOLD])}{more}")
