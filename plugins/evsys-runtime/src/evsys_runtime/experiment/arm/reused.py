"""Give an arm the result of a run on record."""

from __future__ import annotations

import attrs

from evsys.errors import BudgetExceeded
from evsys.types import EvaluationResult, RunResult, Usage
from evsys_record.encoding import as_tree
from evsys_runtime.evaluation.results import in_task_order, without_cost
from evsys_runtime.experiment.arm.attempt import ArmAttempt
from evsys_runtime.experiment.reuse.reusable import FoundRun
from evsys_runtime.experiment.state.facts import is_simulated
from evsys_runtime.experiment.state.session import run_id_of
from evsys_runtime.experiment.state.starting_weights import untrained_key

__all__ = ["taken_from_record"]

_SAME = ("stages", "order", "backend", "deterministic")
"""The keys of run.json that a reused run shares with its source."""


def taken_from_record(attempt: ArmAttempt, found: FoundRun | None) -> RunResult | None:
    """The result of a run on record for this attempt; None if the arm is to be trained.

    Raises:
        BudgetExceeded: it would have to be trained, and the budget doesn't pay for that.
        StoreError: the result can't be put on record.
    """
    if found is not None:
        return _take_over(attempt, found)
    why_not = attempt.session.unpaid.get(run_id_of(attempt.arm))
    if why_not is not None:
        raise BudgetExceeded(why_not)
    return None


def _take_over(attempt: ArmAttempt, found: FoundRun) -> RunResult:
    """Make the result of a run on record the result of this attempt, without its costs.

    Raises:
        StoreError: it can't be put on record.
    """
    run, source = found.result.run, found.source
    assert run is not None  # a run that was found has completed
    by_name = {bound.name: bound for bound in attempt.benchmarks}
    scored = tuple(
        without_cost(in_task_order(each, by_name[each.benchmark])) for each in found.result.evaluations
    )
    attempt.scored, attempt.reused, attempt.selected = scored, found, run.selected_checkpoint
    attempt.record.note(
        **{name: found.facts[name] for name in _SAME if name in found.facts}, reused=as_tree(source)
    )
    attempt.warnings += found.result.warnings
    told = {"run_id": run_id_of(attempt.arm), "experiment": source.experiment_id, "run": source.run_id}
    attempt.session.log.info("run.reused", **told)
    _share(attempt, scored)
    return attrs.evolve(run, usage=Usage(), roles={})


def _share(attempt: ArmAttempt, scored: tuple[EvaluationResult, ...]) -> None:
    """Share scores of starting weights and of API models with the other arms, and note a simulated model."""
    session, arm = attempt.session, attempt.arm
    if is_simulated(session.plan, arm, attempt.record.facts):
        session.simulated.add(arm.run.backend.kind)
    for result in scored:
        if result.model is not None:
            session.compared.remember(f"{result.benchmark}@{result.model}", result)
        elif result.step == 0:
            benchmark = next(bound for bound in attempt.benchmarks if bound.name == result.benchmark)
            key = untrained_key(arm, benchmark, session.plan.registry, session.seeds(arm))
            session.untrained.remember(key, result)
