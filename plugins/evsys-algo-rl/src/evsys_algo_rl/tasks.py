"""Tasks before anything is sampled: can each of them be judged?"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from evsys import current_registry
from evsys.errors import PLUGIN_FAILURES, DataError, EvsysError
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.evaluation.verify import BoundVerifier, bind_verifier

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.types import HarborTask, RunContext, VerifierSpec

__all__ = ["check_tasks"]

MOST_TOLD = 5


def check_tasks(ctx: RunContext) -> None:
    """Look up every verifier that the run's tasks name, and let it look at what it is to expect.

    Raises:
        DataError: some tasks can't be judged; names the first of them and what is wrong.
    """
    if not isinstance(ctx.rollouts, TrainingRollouts):  # others may judge in their own way
        return
    registry = current_registry()
    bound: dict[str, BoundVerifier | EvsysError] = {}
    tasks: Iterable[HarborTask] = ctx.data
    complaints = ((task.task_id, _complaint(task, registry, bound)) for task in tasks)
    wrong = [f"task {task_id!r}: {complaint}" for task_id, complaint in complaints if complaint is not None]
    if not wrong:
        return
    more = f", and {len(wrong) - MOST_TOLD} more" if len(wrong) > MOST_TOLD else ""
    raise DataError(f"tasks that can't be judged: {'; '.join(wrong[:MOST_TOLD])}{more}")


def _complaint(
    task: HarborTask, registry: Registry, bound: dict[str, BoundVerifier | EvsysError]
) -> str | None:
    if task.verifier is None:
        return None if task.path is not None else "it has no verifier"
    verifier = _bound(task.verifier, registry, bound)
    if isinstance(verifier, EvsysError):
        return verifier.message
    try:
        verifier.check(task.verifier.expected)
    except PLUGIN_FAILURES as exc:
        return f"verifier {verifier.name!r}: {exc}"
    return None


def _bound(
    spec: VerifierSpec, registry: Registry, bound: dict[str, BoundVerifier | EvsysError]
) -> BoundVerifier | EvsysError:
    key = f"{spec.name} {json.dumps(spec.params, sort_keys=True, default=repr) if spec.params else ''}"
    if key not in bound:
        try:
            bound[key] = bind_verifier(spec, registry)
        except EvsysError as error:
            bound[key] = error
    return bound[key]
