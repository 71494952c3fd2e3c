"""Doubts about a conclusion that no statistics removes: graders that weren't checked, and weights of unknown origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evsys_record.past import Mark
from evsys_record.text import list_names

if TYPE_CHECKING:
    from evsys_runtime.experiment.state.session import Session

__all__ = ["find_doubts"]


def find_doubts(session: Session) -> Iterator[Mark]:
    """The doubts about an experiment whose training rows were searched."""
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
