"""The looks at a question taken before an experiment concludes, and the level that they leave it."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from evsys.errors import StoreError
from evsys.types import ArmResult, Conclusion, LookSeries
from evsys_record import final_scoring
from evsys_record.encoding import as_tree, now
from evsys_record.files import read_json
from evsys_record.hashing import digest
from evsys_record.look_ledger import LedgerLine, LookLedger, ScoredLine, ledger_path
from evsys_record.looks import missing_from
from evsys_record.past_files import set_aside
from evsys_record.questions import AskedQuestion, asked_question, complete_looks, looks_taken
from evsys_record.user_ledger import user_ledger
from evsys_runtime.config.budgeting import known_steps
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.data.task_contents import content_hashes
from evsys_runtime.experiment.lineage.experiments import Earlier, ledger_of
from evsys_runtime.experiment.prior.final_tests import entry_of
from evsys_runtime.experiment.prior.level_parts import parts_of_level
from evsys_runtime.experiment.prior.seed_audit import CHANCE
from evsys_runtime.experiment.state.options import DRY_STEPS
from evsys_stats.alpha_spending import level_of_look

if TYPE_CHECKING:
    from evsys_record.experiment_record import ExperimentRecord
    from evsys_record.index import Index
    from evsys_runtime.evaluation.benchmarks import BoundBenchmark
    from evsys_runtime.experiment.state.session import Session

_SCORE_DIGITS = 12

__all__ = [
    "SeriesSoFar",
    "close_look",
    "look_series",
    "put_evaluation",
    "put_into_ledger",
    "put_scores",
    "scored_runs",
]


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
    if reserve:
        try:
            with LookLedger.locked(*_ledgers(session)) as ledger:
                _take_in_records(ledger, index, record.experiment_id, session.warnings.append)
                series = _series(session, question, ledger, index, entry=entry, results=results)
                line = LedgerLine(
                    experiment_id=record.experiment_id,
                    time=now(),
                    state="reserved",
                    question=question,
                    number=series.number,
                    runs=scored_runs(results),
                    evidence=_evidence(results),
                    scores=_compared_scores(session, entry, results),
                )
                ledger.append([line])
                return SeriesSoFar(series=series, reserved=line)
        except StoreError as error:
            session.warnings.append(f"this look can't be put into the ledger of looks: {error}")
    ledger = LookLedger(ledger_path(experiments))
    return SeriesSoFar(series=_series(session, question, ledger, index, entry=entry, results=results))


def _ledgers(session: Session) -> tuple[Path, Path]:
    """The ledger of the folder that the experiment is in, and that of its project: one, unless the folder is elsewhere."""
    return (
        ledger_path(session.record.directory.parent),
        ledger_path(session.plan.project_root / ".evsys" / "experiments"),
    )


def _take_in_records(ledger: LookLedger, index: Index | None, own: str, tell: Callable[[str], None]) -> None:
    """The looks on record that the ledger doesn't have; where there is no ledger at all it is made of them, and says so."""
    try:
        missing = [] if index is None else missing_from(ledger, index, apart_from=own)
    except sqlite3.Error as error:
        tell(f"looks on record that the ledger of looks lacks can't be looked up: {error}")
        return
    if missing and not ledger.lines:
        ledger.mark_rebuilt(len({line.experiment_id for line in missing}))
    ledger.append(missing)


def _series(
    session: Session,
    question: AskedQuestion,
    ledger: LookLedger,
    index: Index | None,
    *,
    entry: str,
    results: Sequence[ArmResult],
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
        taken = taken[: -1 if _is_repeated(concluded[-1][0], _evidence(results), session.record) else None]
    looks = (*others, *taken)
    number = len(looks) + 1
    level = level_of_look(number, ALPHA)
    scorings = parts_of_level(session, entry, results, level)
    scores = _compared_scores(session, entry, results)
    return LookSeries(
        number=number,
        level=level / scorings,
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
        other_tasks=known.looks_on_other_tasks(question, apart_from=own),
        unasked=ledger.seen_without_a_look(question, apart_from=[own]),
        repeated=ledger.scored_before(scores, apart_from=own),
        elsewhere=_looks_elsewhere(question, ledger, tell),
    )


def _is_repeated(line: LedgerLine, evidence: str, record: ExperimentRecord) -> bool:
    """Whether the scores are those that an earlier look rests on: so nothing new can be seen. Neither ids nor times say that, as both can be chosen."""
    if line.evidence is not None:
        return line.evidence == evidence
    return all(
        attempt.started is not None and attempt.started <= line.time
        for run in record.runs()
        for attempt in run.attempts
    )


def _evidence(results: Sequence[ArmResult]) -> str:
    """The digest of all scores."""
    scores = (
        [arm.run_id, each.benchmark, each.step, each.task_rewards]
        for arm in results
        for each in arm.evaluations
        if each.model is None
    )
    return digest(sorted(scores, key=lambda each: str(each[:3])))


def _compared_scores(session: Session, entry: str, results: Sequence[ArmResult]) -> tuple[str, ...]:
    """For each run that is compared with the baseline the digest of its score on each task; none for scores that two runs may have by chance."""
    tasks = next(one.tasks for one in session.benchmarks if one.name == entry)
    hashes, baseline, found = content_hashes(tasks), session.plan.experiment.metadata.baseline, list[str]()
    for arm in results:
        scoring = None if arm.arm == baseline else final_scoring(arm, entry)
        rewards = (
            {}
            if scoring is None
            else {hashes.get(task, task): each for task, each in scoring.task_rewards.items()}
        )
        if _says_something(rewards.values()):
            found.append(digest(sorted(rewards.items())).rpartition(":")[2][:_SCORE_DIGITS])
    return tuple(found)


def _says_something(rewards: Iterable[object]) -> bool:
    """Whether scores hardly come twice by chance: there are enough ways to spread them over the tasks."""
    counts = Counter(map(str, rewards)).values()
    ways = math.lgamma(sum(counts) + 1) - sum(math.lgamma(count + 1) for count in counts)
    return ways >= -math.log(CHANCE)


def _looks_elsewhere(question: AskedQuestion, ledger: LookLedger, tell: Callable[[str], None]) -> int:
    """How many looks at a question this user took that the ledger doesn't have."""
    path = None if question.simulated else user_ledger(question)
    if path is None:
        return 0
    # By the time as well: where all records are gone, an experiment's name may be given again.
    known = {(line.experiment_id, line.time) for line in ledger.lines}
    try:
        lines = LookLedger(path).lines
    except StoreError as error:
        tell(f"looks in other places can't be counted: {error}")
        return 0
    return sum(
        line.complete and line.question.is_same(question)
        for line in lines
        if (line.experiment_id, line.time) not in known
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
        with LookLedger.locked(*_ledgers(session)) as ledger:
            ledger.append([line])
        path = None if line.look is None or line.question.simulated else user_ledger(line.question)
        if path is not None:
            with LookLedger.locked(path) as ledger:
                ledger.append([line])
    except StoreError as error:
        warning = f"what this look came to can't be put into the ledger of looks: {error}"
        return attrs.evolve(conclusion, warnings=(*conclusion.warnings, warning))
    return conclusion


def scored_runs(results: Sequence[ArmResult]) -> int:
    """How many runs have a score of what they trained."""
    return len(
        {arm.run_id for arm in results if any(each.step and each.model is None for each in arm.evaluations)}
    )


def put_scores(session: Session, runs: int) -> None:
    """Write that so many trained runs have scores, which someone sees although no look is taken, or none yet.
    Blocking.

    It is on file before the first scoring begins: one that is cut off, in its middle or before the conclusion, has
    been seen all the same.
    """
    if runs <= session.runs_on_file or (session.options.dry and not _is_peek(session)):
        return
    session.runs_on_file = runs
    _append_scores(
        _ledgers(session),
        session.record.experiment_id,
        session.benchmarks,
        simulated=bool(session.simulated),
        runs=runs,
        tell=session.warnings.append,
    )


def _is_peek(session: Session) -> bool:
    """Whether a dry run scores what a run would: its few steps are all that an arm trains, or an arm starts from trained weights."""
    for arm in session.plan.arms:
        steps, model = known_steps(arm.run), arm.run.model
        if model.init_from_checkpoint or model.load_checkpoint_path:
            return True
        if steps is not None and steps <= DRY_STEPS:
            return True
    return False


def put_evaluation(
    project_root: Path,
    evaluation_id: str,
    benchmarks: Sequence[BoundBenchmark],
    *,
    simulated: bool,
    tell: Callable[[str], None],
) -> None:
    """Write that an evaluation outside experiments scored a trained model. Blocking.

    Args:
        project_root: its project.
        evaluation_id: its id.
        benchmarks: what it scores on.
        simulated: whether its backend only imitates a model.
        tell: gets why it can't be written.
    """
    path = ledger_path(project_root / ".evsys" / "experiments")
    _append_scores((path, path), evaluation_id, benchmarks, simulated=simulated, runs=1, tell=tell)


def _append_scores(
    paths: tuple[Path, Path],
    name: str,
    benchmarks: Sequence[BoundBenchmark],
    *,
    simulated: bool,
    runs: int,
    tell: Callable[[str], None],
) -> None:
    contents = (entry_of(one).contents for one in benchmarks)
    line = ScoredLine(
        experiment_id=name,
        time=now(),
        simulated=simulated,
        runs=runs,
        contents=tuple(each for each in contents if each is not None),
    )
    try:
        with LookLedger.locked(*paths) as ledger:
            ledger.append([line])
    except StoreError as error:
        tell(f"that runs have scores can't be put into the ledger of looks: {error}")


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
