"""The conclusion of an experiment: its results, the verdict on them and how it ended, put on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys.errors import PLUGIN_FAILURES
from evsys.types import ArmResult, Conclusion, ExperimentResult, Selection, Usage
from evsys_record.marks import DOUBTS, HACKING_SUSPECTED
from evsys_record.scorings import THROUGH
from evsys_runtime.data.contamination import Match, count_by_match
from evsys_runtime.experiment.prior.doubts import find_doubts
from evsys_runtime.experiment.prior.looks import close_look, put_into_ledger, put_scores, scored_runs
from evsys_runtime.experiment.prior.prior import PriorEvidence, collect_prior
from evsys_runtime.experiment.prior.seed_audit import same_orders
from evsys_runtime.experiment.resume.resume import to_resume
from evsys_runtime.experiment.search.confirmation import confirming_of, planned_repeats
from evsys_runtime.experiment.search.search import ended_without_budget
from evsys_runtime.experiment.stages.chain import merge_stages
from evsys_runtime.experiment.stages.forgetting import forgetting_of
from evsys_runtime.experiment.state.outcome import failed_parts, outcome_of
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.experiment.supervision.interrupts import interruption
from evsys_runtime.experiment.verdict.conclude import conclude, test_looks
from evsys_runtime.experiment.verdict.confirmation import Confirming
from evsys_runtime.experiment.verdict.prose import conclusion_markdown
from evsys_runtime.experiment.verdict.question import Question, question_of

__all__ = ["conclude_and_write", "write_down"]


def conclude_and_write(
    session: Session,
    seconds: float,
    flagged: Mapping[str, Mapping[str, Match]],
    *,
    ended_by: BaseException | None = None,
) -> ExperimentResult:
    """Conclude an experiment and write the conclusion; needs only memory and disk, so it also works after Ctrl-C.

    Args:
        session: the experiment, with its results so far.
        seconds: how long it took.
        flagged: of each entry the tasks among training rows, with how they match.
        ended_by: the exception that ended it before all arms were done.

    Raises:
        StoreError: it can't be written.
    """
    ids = map(run_id_of, session.plan.arms)
    arms = tuple(session.results[run_id] for run_id in ids if run_id in session.results)
    in_stages = any(arm.stage is not None for arm in session.plan.arms)
    decided_by = merge_stages(session.plan, arms) if in_stages else arms
    question = None if session.options.dry else question_of(session.plan, session.benchmarks)
    confirming = None if question is None else confirming_of(session)
    asked = [] if question is None else [question]
    asked += [] if confirming is None else [confirming.question]
    known = collect_prior(session, asked, decided_by, concludes=True)
    alike = same_orders(arms)
    warnings = _warnings(session, arms, (*alike, *session.plan.registry.warnings), ended_by)
    conclusion = _decide(session, question, confirming, known, decided_by, warnings=warnings, flagged=flagged)
    if in_stages:
        told = () if session.options.dry else forgetting_of(session.plan, session.results, session.benchmarks)
        conclusion = attrs.evolve(conclusion, forgetting=told, test_looks=test_looks(arms))
    conclusion = _add_run_warnings(session, conclusion, arms, alike)
    series = known.series.get(asked[-1].benchmark) if asked else None
    if series is not None:
        complete = _complete(session, arms, ended_by)
        conclusion = attrs.evolve(conclusion, looks=close_look(series, conclusion, complete=complete))
    if known.reserved is None:
        put_scores(session, scored_runs(arms))
    conclusion = known.add_warnings(put_into_ledger(session, known.reserved, conclusion))
    status, exit_code = outcome_of(
        arms,
        conclusion,
        planned=len(session.plan.arms),
        ended_by=ended_by,
        unpaid=ended_without_budget(session),
        stopped=session.steering.stop is not None,
    )
    result = ExperimentResult(
        experiment_id=session.record.experiment_id,
        name=session.plan.experiment.name,
        status=status,
        directory=str(session.record.directory),
        conclusion=conclusion,
        arms=arms,
        dry=session.options.dry,
        seconds=seconds,
        usage=conclusion.usage,
        warnings=warnings,
        exit_code=exit_code,
        failed=failed_parts(arms),
    )
    write_down(session, result, None)
    return result


def _complete(session: Session, arms: Sequence[ArmResult], ended_by: BaseException | None) -> bool:
    """Whether every planned run is through, and nothing was left to do."""
    return ended_by is None and sum(arm.status in THROUGH for arm in arms) == len(session.plan.arms)


def _decide(
    session: Session,
    question: Question | None,
    confirming: Confirming | None,
    known: PriorEvidence,
    arms: Sequence[ArmResult],
    *,
    warnings: Sequence[str],
    flagged: Mapping[str, Mapping[str, Match]],
) -> Conclusion:
    """The verdict on the arms, confirmed on another benchmark where the plan says so, at the level that earlier looks leave."""
    question = question and known.adjust_level(question)
    confirming = confirming and attrs.evolve(confirming, question=known.adjust_level(confirming.question))
    deciding = question if confirming is None else confirming.question
    matches = flagged.get(deciding.benchmark, {}) if deciding else {}
    conclusion = conclude(
        question,
        arms,
        planned=planned_repeats(session.plan, "candidate"),
        warnings=warnings,
        flagged=matches.keys(),
        confirming=confirming,
        noise=known.noise,
        deviation=known.deviation,
        allow_leak=session.plan.experiment.metadata.allow_leak,
    )
    if conclusion.without_flagged is None:
        return conclusion
    counts = count_by_match(matches[task] for task in conclusion.without_flagged.tasks)
    return attrs.evolve(conclusion, extra={**conclusion.extra, "leaked_by_match": counts})


def _add_run_warnings(
    session: Session, conclusion: Conclusion, arms: Sequence[ArmResult], alike: Sequence[str]
) -> Conclusion:
    """With what continued in the runs; without a verdict where they can't carry one."""
    health = {arm.run_id: arm.health for arm in arms if arm.health}
    cut_off = sum((arm.cut_off for arm in arms), Usage())
    conclusion = attrs.evolve(
        conclusion,
        health=health,
        cut_off=cut_off,
        selection=_selection(session, arms),
        reused={arm.run_id: arm.reused.experiment_id for arm in arms if arm.reused is not None},
    )
    conclusion = attrs.evolve(conclusion, settle=_settling_advice(conclusion))
    if session.options.dry:
        conclusion = attrs.evolve(conclusion, reason="a dry run concludes nothing")
    elif alike:
        conclusion = attrs.evolve(conclusion, verdict="INVALID", reason=alike[0], without_flagged=None)
    marks: dict[str, Any] = {
        "simulated_by": sorted(session.simulated),
        HACKING_SUSPECTED: _alarmed_runs(arms),
    }
    doubts = tuple(find_doubts(session, conclusion))
    marks[DOUBTS] = [attrs.asdict(doubt) for doubt in doubts]
    conclusion = attrs.evolve(conclusion, warnings=(*conclusion.warnings, *(doubt.says for doubt in doubts)))
    marks["requests"] = session.record.facts.get("requests", [])
    marks = {name: found for name, found in marks.items() if found}
    return attrs.evolve(conclusion, extra={**conclusion.extra, **marks}) if marks else conclusion


def _alarmed_runs(arms: Sequence[ArmResult]) -> list[str]:
    """The runs whose guard raised an alarm."""
    guards = {arm.run_id: arm.run.guard for arm in arms if arm.run is not None}
    return [
        run_id for run_id, guard in guards.items() if guard is not None and guard.suspected_step is not None
    ]


def _settling_advice(conclusion: Conclusion) -> str | None:
    """Advice to settle it; of tasks split in two only one half decides."""
    selection, settling = conclusion.selection, conclusion.settling
    if selection is None or selection.proof != "held_out_tasks" or settling is None or settling.tasks is None:
        return conclusion.settle
    return f"{conclusion.settle}; only the half that doesn't select a checkpoint counts"


def _selection(session: Session, arms: Sequence[ArmResult]) -> Selection | None:
    """Which checkpoint of each run counts; None if there was none to select."""
    plan = session.selection
    if plan.checkpoint == "last" and plan.reason is None:
        return None
    selected = {arm.run_id: arm.run.selected_checkpoint for arm in arms if arm.run is not None}
    runs = {run_id: one for run_id, one in selected.items() if one is not None}
    if plan.checkpoint == "best" and not runs:
        return None
    return Selection(checkpoint=plan.checkpoint, by=plan.by, proof=plan.proof, reason=plan.reason, runs=runs)


def _warnings(
    session: Session, arms: Sequence[ArmResult], known: Sequence[str], ended_by: BaseException | None
) -> tuple[str, ...]:
    """All that an experiment and its runs warn of, each once, without secrets."""
    own = (*session.warnings, *known, *session.hooks.warnings, *_interruption_warning(ended_by))
    said = (*own, *(warning for arm in arms for warning in arm.warnings))
    return tuple(dict.fromkeys(map(session.log_settings.redactor.text, said)))


def _interruption_warning(by: BaseException | None) -> tuple[str, ...]:
    """A warning that not everything was done, and why."""
    if by is None:
        return ()
    why = str(by) or type(by).__name__ if isinstance(by, PLUGIN_FAILURES) else interruption().reason
    return (f"the experiment ended early: {why}",)


def write_down(session: Session, result: ExperimentResult, prose: str | None) -> None:
    """Put a result on record, with what a listener wrote of it where one did."""
    hypothesis = session.plan.experiment.metadata.hypothesis
    text = conclusion_markdown(
        result, result.conclusion, hypothesis=hypothesis, prose=prose, plots=session.record.plots()
    )
    session.record.write_result(result, text, to_resume=to_resume(session))
