"""Arms that the file doesn't list: those that a search proposes, those that confirm a winner.

Decisions of a source are written to proposals.jsonl before any of its arms begins, and read from there when the
experiment is resumed: a decision is made once, regardless of later interruptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import StoreError
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.experiment.state.facts import arm_facts
from evsys_runtime.experiment.state.resolved_tree import (
    recorded_resolution,
    resolved_arms,
    resolved_tree,
    with_confirm_seeds,
)

if TYPE_CHECKING:
    from evsys_record.experiment_record import ExperimentRecord
    from evsys_runtime.experiment.state.session import ArmSource, Session

__all__ = ["add_recorded_arms", "next_arms"]


def next_arms(session: Session, running: int) -> Sequence[ArmConfig]:
    """The arms to continue with, decided by the first source that has any; they are in the session's plan and on record.

    Raises:
        StoreError: they can't be put on record.
    """
    for source in session.sources:
        proposals = source.propose(session, running)
        if proposals:
            session.record.propose(source.name, proposals)
            session.plan, added = _with(session.plan, source, proposals)
            session.record.note(arms=[arm_facts(arm) for arm in session.plan.arms])
            _resolve(session, added)
            if added:
                return added
        if running:
            break
    return ()


def _resolve(session: Session, added: Sequence[ArmConfig]) -> None:
    """Have resolved.json say what the added arms are."""
    record, plan, benchmarks = session.record, session.plan, session.benchmarks
    tree = recorded_resolution(record)
    if tree is None:
        record.write_resolved(resolved_tree(plan, benchmarks))
    elif added:
        arms = [*tree["arms"], *resolved_arms(plan, added, benchmarks)]
        confirm = plan.experiment.confirm
        chosen = {} if confirm is None else {"confirm": plan.resolver.fields(confirm)}
        record.write_resolved({**tree, **chosen, "arms": arms})


def add_recorded_arms(plan: Plan, record: ExperimentRecord, sources: Sequence[ArmSource]) -> Plan:
    """A plan with the arms added to it before the experiment was cut off.

    Raises:
        StoreError: the proposals can't be read, or are of a source that the experiment doesn't have.
    """
    by_name = {source.name: source for source in sources}
    for line in record.read_proposals():
        source = by_name.get(line["source"])
        if source is None:
            raise StoreError(f"{record.experiment_id} has arms of {line['source']!r}, which it doesn't name")
        plan, _ = _with(plan, source, [line["proposal"]])
    return plan


def _with(
    plan: Plan, source: ArmSource, proposals: Sequence[Mapping[str, Any]]
) -> tuple[Plan, tuple[ArmConfig, ...]]:
    added = tuple(arm for proposal in proposals for arm in source.arms(plan, proposal))
    for proposal in proposals:
        plan = with_confirm_seeds(
            plan, proposal.get("seeds")
        )  # only a confirmation proposes a number of them
    return attrs.evolve(plan, arms=(*plan.arms, *added)), added
