"""The looks at a question taken before an experiment concludes, and the level that they leave it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from evsys.errors import StoreError
from evsys.types import ArmResult, Conclusion, LookSeries
from evsys_record.encoding import as_tree, now
from evsys_record.files import read_json
from evsys_record.look_ledger import LedgerLine, LookLedger
from evsys_record.looks import missing_from
from evsys_record.past_files import set_aside
from evsys_record.proofs import proof_name
from evsys_record.questions import AskedQuestion, asked_question, complete_looks, looks_taken
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment.lineage.experiments import Earlier, ledger_of
from evsys_stats.alpha_spending import level_of_look

if TYPE_CHECKING:
    from evsys_record.experiment_record import ExperimentRecord
    from evsys_record.index import Index
    from evsys_runtime.experiment.state.session import Session

__all__ = ["SeriesSoFar", "close_look", "look_series", "put_into_ledger"]


@attrs.frozen(kw_only=True)
class SeriesSoFar:
    """The series that a conclusion continues, and the line by which the ledger has its look reserved; None if it has none."""

    series: LookSeries
    reserved: LedgerLine | None = None


def look_series(
    session: Session, entry: str, results: Sequence[ArmResult], earlier: Earlier, *, reserve: bool
) -> SeriesSoFar | None:
    """The series that a conclusion of an experiment continues; None if nothing is asked. Blocking.

    Args:
        session: whose experiment it is.
        entry: the benchmark entry that decides.
        results: its arms.
        earlier: the index of the experiments on record.
        reserve: put this look into the ledger, so that no other experiment gets its number.
    """
    record = session.record
    resolved = read_json(record.directory / "resolved.json")
    question = asked_question(record.facts, resolved, simulated=bool(session.simulated), entry=entry)
    if question is None:
        return None
    experiments, index = record.directory.parent, earlier()
    scorings = _scorings_to_end_at(entry, results)
    if reserve:
        try:
            with LookLedger.locked(experiments) as ledger:
                _take_in_records(ledger, index, record.experiment_id, session.warnings.append)
                series = _series(session, question, ledger, index, scorings)
                line = LedgerLine(
                    experiment_id=record.experiment_id,
                    time=now(),
                    state="reserved",
                    question=question,
                    number=series.number,
                )
                ledger.append([line])
                return SeriesSoFar(series=series, reserved=line)
        except StoreError as error:
            session.warnings.append(f"this look can't be put into the ledger of looks: {error}")
    return SeriesSoFar(series=_series(session, question, LookLedger(experiments), index, scorings))


def _take_in_records(ledger: LookLedger, index: Index | None, own: str, tell: Callable[[str], None]) -> None:
    """The looks on record that the ledger doesn't have; where there is no ledger at all it is made of them, and says so."""
    try:
        missing = [] if index is None else missing_from(ledger, index, apart_from=own)
    except sqlite3.Error as error:
        tell(f"looks on record that the ledger of looks lacks can't be looked up: {error}")
        return
    if missing and not ledger.exists:
        ledger.mark_rebuilt(len({line.experiment_id for line in missing}))
    ledger.append(missing)


def _series(
    session: Session, question: AskedQuestion, ledger: LookLedger, index: Index | None, scorings: int
) -> LookSeries:
    record, own = session.record, session.record.experiment_id
    tell, experiments = session.warnings.append, session.record.directory.parent
    known = ledger_of(index, experiments, tell)
    others = known.looks_at(question, apart_from=own)
    of_record = complete_looks(own, list(set_aside(record.directory)))
    concluded = [
        (line, look)
        for line, look in ledger.looks().get(own, ())
        if line.state != "reserved" and line.complete and line.question.is_same(question)
    ]
    taken = max(of_record, tuple(look for _, look in concluded), key=len)
    if concluded and len(taken) == len(concluded):
        # Cut off after it reached the ledger, with or without its conclusion: with nothing new this is the same look.
        taken = taken[: -1 if _nothing_began_since(session.record, concluded[-1][0].time) else None]
    looks = (*others, *taken)
    number = len(looks) + 1
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
        rebuilt=ledger.rebuilt is not None,
        similar=known.looks_like(question, apart_from=own),
    )


def _nothing_began_since(record: ExperimentRecord, moment: str) -> bool:
    return all(
        attempt.started is not None and attempt.started <= moment
        for run in record.runs()
        for attempt in run.attempts
    )


def put_into_ledger(session: Session, reserved: LedgerLine | None, conclusion: Conclusion) -> Conclusion:
    """Write what became of a reserved look. Blocking; the conclusion, with a warning if it can't be written."""
    if reserved is None or conclusion.looks is None:
        return conclusion
    looks = looks_taken(reserved.experiment_id, [as_tree(conclusion)])
    line = attrs.evolve(
        reserved,
        time=now(),
        state="concluded",
        look=next(iter(looks), None),
        complete=conclusion.looks.complete,
    )
    try:
        with LookLedger.locked(session.record.directory.parent) as ledger:
            ledger.append([line])
    except StoreError as error:
        warning = f"what this look came to can't be put into the ledger of looks: {error}"
        return attrs.evolve(conclusion, warnings=(*conclusion.warnings, warning))
    return conclusion


def close_look(series: LookSeries, conclusion: Conclusion, *, complete: bool) -> LookSeries:
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
    """At how many scorings of `entry` a listener, or who asked for it, could have ended a run that they ended, at most; 1 if none did.

    The scoring at which it ended decides then, unless a checkpoint was selected and proved on other samples.
    """
    counts = [1]
    for result in results:
        scored = {each.step for each in result.evaluations if each.benchmark == entry and each.model is None}
        proved = any(each.benchmark == proof_name(entry) for each in result.evaluations)
        ended = result.status in ("completed", "stopped")
        if result.run is not None and result.run.stop_reason and ended and not proved:
            counts.append(len(scored - {0}))
    return max(counts)
