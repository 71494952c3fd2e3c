"""The looks at a question that were taken before an experiment concludes, and the level that they leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from evsys.types import ArmResult, Conclusion, LookSeries
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment.earlier.experiments import Earlier, ledger_of
from evsys_runtime.experiment.verdict.spending import level_of_look
from evsys_runtime.record.files import read_json
from evsys_runtime.record.look_file import Asked, add_looks
from evsys_runtime.record.past_files import set_aside
from evsys_runtime.record.proofs import proof_name
from evsys_runtime.record.questions import AskedQuestion, asked_question, complete_looks, looks_taken

if TYPE_CHECKING:
    from evsys_runtime.experiment.session import Session

__all__ = ["as_taken", "keep_looks", "look_series"]


def look_series(
    session: Session, entry: str, results: Sequence[ArmResult], earlier: Earlier
) -> LookSeries | None:
    """The series that a conclusion of an experiment continues; None if nothing is asked. Blocking.

    Args:
        session: whose experiment it is.
        entry: the benchmark entry that decides.
        results: its arms.
        earlier: the index of the experiments on record.
    """
    record = session.record
    own = record.experiment_id
    question = _question(session, entry)
    if question is None:
        return None
    others = ledger_of(earlier(), question.key, session.warnings.append).looks_at(question, apart_from=own)
    looks = (*others, *complete_looks(own, list(set_aside(record.directory))))
    number, scorings = len(looks) + 1, _scorings_to_end_at(entry, results)
    return LookSeries(
        number=number,
        level=level_of_look(number, ALPHA) / scorings,
        alpha=ALPHA,
        metric=question.metric,
        claim=question.claim,
        baseline=question.baseline,
        levers=question.levers,
        tasks=None if question.contents is None else question.contents.hash,
        scorings=scorings,
        earlier=looks,
    )


def keep_looks(session: Session, entry: str) -> None:
    """Put the looks of an experiment on file, after its conclusion was written; nothing if it tested nothing. Blocking.

    Args:
        session: whose experiment it is.
        entry: the benchmark entry that decides.

    Raises:
        StoreError: a file can't be read or written.
    """
    record = session.record
    conclusions = [*set_aside(record.directory), read_json(record.directory / "conclusion.json")]
    looks, question = looks_taken(record.experiment_id, conclusions), _question(session, entry)
    if looks and question is not None:
        asked = Asked(
            experiment_id=record.experiment_id,
            question=question,
            finished=str(record.facts.get("finished") or ""),
            looks=looks,
        )
        add_looks(record.directory.parent, asked)


def _question(session: Session, entry: str) -> AskedQuestion | None:
    record = session.record
    resolved = read_json(record.directory / "resolved.json")
    return asked_question(record.facts, resolved, simulated=bool(session.simulated), entry=entry)


def as_taken(series: LookSeries, conclusion: Conclusion, *, complete: bool) -> LookSeries:
    """The series with what became of this look.

    Args:
        series: what the conclusion continues.
        conclusion: what was concluded.
        complete: whether every planned run has a score, and nothing was left to do.
    """
    again = conclusion.confirmed
    compared = conclusion.comparisons if again is None else (again.comparison,)
    tested = conclusion.verdict not in (None, "INVALID") and any(c.p_value is not None for c in compared)
    return attrs.evolve(series, tested=tested, complete=complete)


def _scorings_to_end_at(entry: str, results: Sequence[ArmResult]) -> int:
    """At how many scorings of `entry` a listener could have ended a run that it ended, at most; 1 if none did.

    The scoring at which it ended decides then, unless a checkpoint was selected and proved on other samples.
    """
    counts = [1]
    for result in results:
        scored = {each.step for each in result.evaluations if each.benchmark == entry and each.model is None}
        proved = any(each.benchmark == proof_name(entry) for each in result.evaluations)
        if result.run is not None and result.run.stop_reason and result.status == "completed" and not proved:
            counts.append(len(scored - {0}))
    return max(counts)
