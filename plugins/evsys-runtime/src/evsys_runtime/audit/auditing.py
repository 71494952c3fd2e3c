"""An audit from end to end: read the record, check its files, recompute its conclusion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys_record.audits import Audit, audit_of
from evsys_record.marks import marks_of
from evsys_record.past_files import read_experiment
from evsys_runtime.audit.comparing import compare
from evsys_runtime.audit.decision import confirmed_verdict, verdict_of
from evsys_runtime.audit.deviations import check_deviation
from evsys_runtime.audit.evidence import Evidence, read_evidence
from evsys_runtime.audit.files import check_files
from evsys_runtime.audit.findings import Section
from evsys_runtime.audit.forgetting import check_forgetting
from evsys_runtime.audit.ledger import check_ledger
from evsys_runtime.audit.noise import check_noise, limit_of
from evsys_runtime.audit.numbers import RecomputedComparisons, check_claims, check_comparisons
from evsys_runtime.audit.question import BASE_MODEL, Question, question_of
from evsys_runtime.audit.reuse import check_reuse
from evsys_runtime.audit.rollouts import check_rollouts
from evsys_runtime.audit.sides import arm_runs, planned_runs

__all__ = ["audit_experiment"]

type Tree = Mapping[str, Any]

_MOST_LEAKED = 0.1
_CHANCE = 1e-6
"""An order of rows that a fair shuffle repeats more often than this says nothing."""


def audit_experiment(folder: Path) -> Audit:
    """Audit the experiment in a folder of a record; nothing is written.

    Values that aren't of the type that evsys writes are differences.

    Raises:
        StoreError: a file of the record is damaged.
    """
    evidence = read_evidence(folder)
    section = Section(part="files", about="record")
    with section.read("files"):
        check_files(section, evidence)
    with section.read("reused runs"):
        check_reuse(section, evidence)
    with section.read("rollouts"):
        check_rollouts(section, evidence)
    with section.read("forgetting"):
        check_forgetting(section, evidence)
    with section.read("conclusion"):
        _check_verdict(section.section("verdict", "experiment"), evidence)
    past = read_experiment(folder).past
    recorded = evidence.conclusion.get("verdict")
    found = audit_of(folder.name, recorded if isinstance(recorded, str) else None, section.checks)
    return attrs.evolve(found, subject=past.subject, marks=marks_of(past))


def _check_verdict(verdict: Section, evidence: Evidence) -> None:
    why = _audit_without_conclusion(evidence)
    if why is not None:
        verdict.unchecked("verdict", why)
    elif not evidence.conclusion:
        pass  # `check_files` has it
    elif evidence.facts.get("success_metric") is None or evidence.facts.get("dry"):
        verdict.same("verdict", evidence.conclusion["verdict"], None)
    else:
        _check_conclusion(verdict, evidence)


def _audit_without_conclusion(evidence: Evidence) -> str | None:
    if evidence.facts.get("finished") is None:
        return "the experiment hasn't ended"
    conclusion = evidence.conclusion
    if conclusion and not (
        "claims" in conclusion and all("level" in one for one in conclusion["comparisons"])
    ):
        return "an earlier version of evsys concluded this, by other rules"
    return None


def _check_conclusion(section: Section, evidence: Evidence) -> None:
    question = question_of(evidence)
    if isinstance(question, str):
        section.unchecked("verdict", question)
        return
    conclusion = evidence.conclusion
    check_noise(section.section("numbers", "noise floor"), evidence, question)
    if conclusion.get("looks") is not None:
        _check_looks(section.section("numbers", "looks"), conclusion)
        check_ledger(section.section("files", "ledger of looks"), evidence)
    check_deviation(section.section("numbers", "run-to-run deviation"), conclusion)
    decided = _recompute_verdict(section, evidence, question, "candidate", conclusion)
    if decided is None:
        return
    verdict, found = decided
    _check_best(section.section("numbers", "best arm"), question, found, conclusion)
    confirmed = conclusion.get("confirmed")
    subject = _subject(conclusion["comparisons"])
    if confirmed is not None:
        verdict, subject = _recompute_confirmation(section, evidence, verdict, subject)
    if _is_leaked(evidence, conclusion) or any(_same_orders(evidence)):
        verdict = "INVALID"
    section.same("verdict", conclusion["verdict"], verdict)
    section.same("subject", conclusion["subject"], subject)
    if conclusion.get("without_flagged") is not None:
        _check_verdict_without(section, evidence, question, conclusion["without_flagged"])


def _recompute_verdict(
    section: Section, evidence: Evidence, question: Question, purpose: str, conclusion: Tree
) -> tuple[str, RecomputedComparisons] | None:
    """The verdict of the runs of a purpose, with its comparisons checked; None where the arms on record aren't those that ran."""
    arms, planned = arm_runs(evidence, purpose), planned_runs(evidence, purpose)
    compared = compare(question, arms, planned)
    found = RecomputedComparisons(question, compared, arms, planned)
    comparisons = conclusion["comparisons"]
    about = "comparisons" if purpose == "candidate" else "confirmed"
    check_comparisons(section.section("numbers", about), found, comparisons)
    if [each["arm"] for each in comparisons] != [one.arm.name for one in compared]:
        return None
    if purpose == "candidate" and "claims" in conclusion:
        check_claims(section.section("numbers", "claims"), found, conclusion["claims"], comparisons)
    if conclusion.get("checkpoints"):
        models = section.section("numbers", "these models")
        check_comparisons(models, found, conclusion["checkpoints"], subject="checkpoint")
    claims = conclusion.get("claims", ())
    return verdict_of(question, compared, comparisons, claims), found


def _subject(comparisons: Iterable[Tree]) -> str | None:
    claims = {each["claim"] for each in comparisons} - {None}
    return None if not claims else "recipe" if claims == {"recipe"} else "checkpoint"


def _recompute_confirmation(
    section: Section, evidence: Evidence, first: str, subject: str | None
) -> tuple[str, str | None]:
    """The verdict where a winner was tried again: its fresh runs decide."""
    conclusion = evidence.conclusion
    confirmed = conclusion["confirmed"]
    question = question_of(evidence, confirmed["benchmark"])
    if isinstance(question, str):
        section.unchecked("confirmed", question)
        return first, subject
    question = _one_arm(question)
    comparison = confirmed["comparison"]
    decided = _recompute_verdict(
        section,
        evidence,
        question,
        "confirm",
        {"comparisons": [comparison], "claims": ()},
    )
    if decided is None:
        return first, subject
    again = decided[1].compared[0]
    before = {each["arm"]: each["outcome"] for each in conclusion["comparisons"]}
    won = before.pop(comparison["arm"], None) == "win"
    verdict = confirmed_verdict(first, again, comparison["outcome"], [*before.values()], won=won)
    again_decides = first != "INVALID" and (won or comparison["outcome"] == "win")
    return verdict, _subject([comparison]) if again_decides else subject


def _one_arm(question: Question) -> Question:
    """A question about one arm: the noise floor's limit is that of one comparison."""
    noise = question.noise
    if noise is None or noise.get("limit") is None:
        return question
    return attrs.evolve(question, noise={**noise, "limit": limit_of(noise, 1, question.level)})


def _check_best(part: Section, question: Question, found: RecomputedComparisons, conclusion: Tree) -> None:
    """The best score of all arms that have one, the baseline included."""
    sides = {one.arm.name: one.arm for one in found.compared}
    sides |= {one.base.name: one.base for one in found.compared if question.baseline != BASE_MODEL}
    scored = {name: question.sign * side.value for name, side in sides.items() if side.value is not None}
    if question.contrast is not None:
        return  # arms that aren't compared have a part in it
    best = max(scored.values(), default=None)
    part.close("best_score", conclusion["best_score"], None if best is None else question.sign * best)


def _same_orders(evidence: Evidence) -> Iterable[str]:
    """Arms with two repeats that took the same rows in the same order."""
    seen: set[tuple[str, str | None, str]] = set()
    for run in evidence.runs:
        order = run.facts.get("order")
        if order is None or not (run.result.get("run") or {}).get("steps"):
            continue
        rows, taken = order["of"], min(order["rows"], order["of"])
        chances = math.lgamma(rows + 1) - math.lgamma(rows - taken + 1)
        key = (run.arm, run.stage, str(order["digest"]))
        if chances >= -math.log(_CHANCE) and key in seen:
            yield run.arm
        seen.add(key)


def _is_leaked(evidence: Evidence, conclusion: Tree) -> bool:
    """Whether more than a tenth of the tasks that decide are among the training rows, and the file doesn't allow that.

    Records of before count no independent tasks and have no such rule.
    """
    without = conclusion.get("without_flagged")
    ruled = any("n_units" in each for each in conclusion["comparisons"])
    if without is None or not ruled or (evidence.resolved.get("metadata") or {}).get("allow_leak"):
        return False
    scored = [s.tree for run in evidence.runs for s in run.scorings if s.tree["model"] is None]
    tasks = {t for tree in scored if tree["benchmark"] == without["benchmark"] for t in tree["task_rewards"]}
    return len(without["tasks"]) > _MOST_LEAKED * len(tasks)


def _check_looks(part: Section, conclusion: Tree) -> None:
    """The level that this look may spend: four fifths of it all for the first, the rest is shared out as 1 / k² from the second on."""
    looks = conclusion["looks"]
    number, alpha = looks["number"], looks["alpha"]
    part.same("number", number, len(looks["earlier"]) + 1)
    share = 0.8 if number == 1 else 0.2 / number**2 / (math.pi**2 / 6.0 - 1.0)
    part.close("level", looks["level"], share * alpha / looks["scorings"])
    part.close("alpha", alpha, 0.05)
    if conclusion.get("confirmed") is None:
        part.close("procedure.level", conclusion["procedure"]["level"], looks["level"])


def _check_verdict_without(section: Section, evidence: Evidence, question: Question, without: Tree) -> None:
    """The verdict without the tasks among the training rows."""
    confirmed = evidence.conclusion.get("confirmed")
    part = section.section("verdict", "without flagged tasks")
    if confirmed is not None:
        part.unchecked("verdict", "it was confirmed, and an audit recomputes that with all tasks only")
        return
    question = attrs.evolve(question, left_out=frozenset(without["tasks"]))
    arms, planned = arm_runs(evidence, "candidate"), planned_runs(evidence, "candidate")
    compared = compare(question, arms, planned)
    found = RecomputedComparisons(question, compared, arms, planned)
    check_comparisons(section.section("numbers", "without flagged tasks"), found, without["comparisons"])
    if question.claim != "better":
        part.unchecked("verdict", "the claims that it rests on aren't on record")
        return
    part.same("verdict", without["verdict"], verdict_of(question, compared, without["comparisons"], ()))
