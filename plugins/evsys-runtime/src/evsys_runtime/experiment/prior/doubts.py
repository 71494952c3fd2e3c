"""Doubts about a conclusion that no statistics removes: graders that weren't checked, and weights of unknown origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evsys_record.past import Mark
from evsys_record.proofs import proven_name
from evsys_record.text import list_names
from evsys_runtime.experiment.prior.rejudging import rejudge

if TYPE_CHECKING:
    from evsys.types import Conclusion
    from evsys_runtime.experiment.state.session import Session

__all__ = ["find_doubts"]


def find_doubts(session: Session, conclusion: Conclusion) -> Iterator[Mark]:
    """The doubts about a conclusion, once training rows were searched. Blocking: answers behind a supported claim are judged again."""
    if session.options.dry or conclusion.verdict is None:
        return
    if session.options.skip_grader_check and session.benchmarks:
        yield Mark(
            kind="grader_check_skipped",
            label="grader check skipped",
            says="grader check skipped: nothing shows that the verifiers tell right answers from wrong ones",
        )
    if session.unknown_weights:
        arms = list_names(list(session.unknown_weights))
        named = "; ".join(f"{arm} starts from {what}" for arm, what in session.unknown_weights.items())
        yield Mark(
            kind="unknown_weights",
            label=f"starting weights of unknown origin: {arms}",
            says=f"starting weights of unknown origin: {arms}, whose training rows can't be searched for benchmark tasks ({named})",
        )
    if conclusion.verdict == "SUPPORTED" and session.plan.success is not None:
        confirmed = conclusion.confirmed
        entry = session.plan.success.benchmark if confirmed is None else confirmed.benchmark
        yield from _odd_judgements(session, entry, session.plan.success.metric)


def _odd_judgements(session: Session, entry: str, metric: str) -> Iterator[Mark]:
    """Verifiers and a metric that give other numbers when they are asked again."""
    again = rejudge(session, entry)
    if again is not None and again.differing:
        label = f"{again.differing} of {again.judged} answers judged otherwise again"
        yield Mark(
            kind="judged_otherwise",
            label=label,
            says=f"{label}: in a fresh process the verifiers of {entry} give other rewards or none, so these depend on more than the answers",
        )
    if again is not None and again.problem is not None:
        yield Mark(
            kind="judged_otherwise",
            label="answers not judged again",
            says=f"answers not judged again: nothing shows that the verifiers of {entry} depend on the answers alone: {again.problem}",
        )
    task_value = next(one for one in session.benchmarks if one.name == entry).metric(metric).task_value
    rewards = [
        samples
        for arm in session.results.values()
        for scoring in arm.evaluations
        if proven_name(scoring.benchmark) == entry and scoring.model is None
        for samples in scoring.task_rewards.values()
    ]
    if [*map(task_value, rewards)] != [*map(task_value, rewards)]:
        label = f"{metric} computed otherwise again"
        yield Mark(
            kind="judged_otherwise",
            label=label,
            says=f"{label}: the metric gives other values for the same rewards, so it depends on more than these",
        )
