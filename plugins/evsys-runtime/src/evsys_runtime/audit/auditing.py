"""An audit from end to end: read the record, check its files, recompute its conclusion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys_runtime.audit.comparing import compare
from evsys_runtime.audit.decision import confirmed_verdict, verdict_of
from evsys_runtime.audit.distributions import studentized_maximum
from evsys_runtime.audit.evidence import Evidence, read_evidence
from evsys_runtime.audit.files import check_files
from evsys_runtime.audit.findings import Section
from evsys_runtime.audit.numbers import Recomputed, check_claims, check_comparisons
from evsys_runtime.audit.question import BASE_MODEL, Question, question_of
from evsys_runtime.audit.rollouts import check_rollouts
from evsys_runtime.audit.sides import arm_runs, final_scoring, planned_runs, untrained_scoring
from evsys_runtime.record.audits import Audit, audit_of

__all__ = ["audit_experiment"]

type Tree = Mapping[str, Any]

_CHANCE = 1e-6
"""An order of rows that a fair shuffle repeats more often than this says nothing."""


def audit_experiment(folder: Path) -> Audit:
    """Audit the experiment in a folder of a record; nothing is written.

    Raises:
        StoreError: a file of the record is damaged.
    """
    evidence = read_evidence(folder)
    section = Section(part="files", about="record")
    check_files(section, evidence)
    check_rollouts(section, evidence)
    verdict = section.section("verdict", "experiment")
    why = _not_concluded(evidence)
    if why is not None:
        verdict.unchecked("verdict", why)
    elif not evidence.conclusion:
        pass  # `check_files` has it
    elif evidence.facts.get("success_metric") is None or evidence.facts.get("dry"):
        verdict.same("verdict", evidence.conclusion["verdict"], None)
    else:
        _check_conclusion(verdict, evidence)
    return audit_of(folder.name, evidence.conclusion.get("verdict"), section.checks)


def _not_concluded(evidence: Evidence) -> str | None:
    if evidence.facts.get("finished") is None:
        return "the experiment hasn't ended"
    if evidence.conclusion and "claims" not in evidence.conclusion:
        return "an earlier version of evsys concluded this, by other rules"
    return None


def _check_conclusion(section: Section, evidence: Evidence) -> None:
    question = question_of(evidence)
    if isinstance(question, str):
        section.unchecked("verdict", question)
        return
    conclusion = evidence.conclusion
    _check_noise(section.section("numbers", "noise floor"), evidence, question)
    decided = _decided(section, evidence, question, "candidate", conclusion)
    if decided is None:
        return
    verdict, found = decided
    _check_best(section.section("numbers", "best arm"), question, found, conclusion)
    confirmed = conclusion.get("confirmed")
    subject = _subject(conclusion["comparisons"])
    if confirmed is not None:
        verdict, subject = _confirmed(section, evidence, verdict, subject)
    repeated = [*_same_orders(evidence)]
    section.same("verdict", conclusion["verdict"], "INVALID" if repeated else verdict)
    section.same("subject", conclusion["subject"], subject)
    if conclusion.get("without_flagged") is not None:
        _check_without(section, evidence, question, conclusion["without_flagged"])


def _decided(
    section: Section, evidence: Evidence, question: Question, purpose: str, conclusion: Tree
) -> tuple[str, Recomputed] | None:
    """The verdict of the runs of a purpose, with its comparisons checked; None where the arms on record aren't those that ran."""
    arms, planned = arm_runs(evidence, purpose), planned_runs(evidence, purpose)
    compared = compare(question, arms, planned)
    found = Recomputed(question, compared, arms, planned)
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


def _confirmed(
    section: Section, evidence: Evidence, first: str, subject: str | None
) -> tuple[str, str | None]:
    """The verdict where a winner was tried once more: its fresh runs decide."""
    conclusion = evidence.conclusion
    confirmed = conclusion["confirmed"]
    question = question_of(evidence, confirmed["benchmark"])
    if isinstance(question, str):
        section.unchecked("confirmed", question)
        return first, subject
    question = _one_arm(question)
    comparison = confirmed["comparison"]
    decided = _decided(
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
    return attrs.evolve(question, noise={**noise, "limit": _limit(noise, 1, question.level)})


def _limit(noise: Tree, arms: int, level: float) -> float:
    multiple = studentized_maximum(arms, len(noise["runs"]) - 1, level)
    return max(float(noise["largest"]), multiple * float(noise["standard_deviation"]))


def _check_best(part: Section, question: Question, found: Recomputed, conclusion: Tree) -> None:
    """The best score of all arms that have one, the baseline included."""
    sides = {one.arm.name: one.arm for one in found.compared}
    sides |= {one.base.name: one.base for one in found.compared if question.baseline != BASE_MODEL}
    scored = {name: question.sign * side.value for name, side in sides.items() if side.value is not None}
    if question.contrast is not None:
        return  # arms that aren't compared have a part in it
    best = max(scored.values(), default=None)
    part.close("best_score", conclusion["best_score"], None if best is None else question.sign * best)


def _check_noise(part: Section, evidence: Evidence, question: Question) -> None:
    noise = question.noise
    if noise is None:
        return
    if noise["experiment_id"] is None:
        part.same("runs", sorted(noise["runs"].items()), sorted(_equal_runs(evidence, question).items()))
    else:
        part.unchecked("runs", f"they are in the record of {noise['experiment_id']}")
    values = [*noise["runs"].values()]
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    part.close("largest", noise["largest"], max(values) - min(values))
    part.close("standard_deviation", noise["standard_deviation"], math.sqrt(2.0 * variance))
    if noise.get("limit") is not None:
        arms = {run.arm for run in evidence.runs if run.purpose == "candidate"} - {question.baseline}
        count = 1 if question.contrast is not None else max(1, len(arms))
        limit = _limit(noise, count, question.level)
        part.close("limit", noise["limit"], limit, tolerance=1e-3 * limit)


def _equal_runs(evidence: Evidence, question: Question) -> dict[str, float]:
    """The score of each run that differs from the others by its seeds alone."""
    untrained = question.baseline == BASE_MODEL
    found: dict[str, float] = {}
    for purpose in ("candidate", "control"):
        for arm, runs in arm_runs(evidence, purpose).items():
            if purpose == "candidate" and not untrained and arm != question.baseline:
                continue
            for run in runs:
                scoring = (untrained_scoring if untrained else final_scoring)(run, question.benchmark)
                values = [] if scoring is None else [*question.task_metric.values(scoring.rewards).values()]
                if values:
                    name = f"{BASE_MODEL}-s{run.repeat}" if untrained else run.run_id
                    found.setdefault(name, math.fsum(values) / len(values))
    return found


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


def _check_without(section: Section, evidence: Evidence, question: Question, without: Tree) -> None:
    """The verdict without the tasks that are among the training rows."""
    confirmed = evidence.conclusion.get("confirmed")
    part = section.section("verdict", "without flagged tasks")
    if confirmed is not None:
        part.unchecked("verdict", "it was confirmed, and an audit recomputes that with all tasks only")
        return
    question = attrs.evolve(question, left_out=frozenset(without["tasks"]))
    arms, planned = arm_runs(evidence, "candidate"), planned_runs(evidence, "candidate")
    compared = compare(question, arms, planned)
    found = Recomputed(question, compared, arms, planned)
    check_comparisons(section.section("numbers", "without flagged tasks"), found, without["comparisons"])
    if question.claim != "better":
        part.unchecked("verdict", "the claims that it rests on aren't on record")
        return
    part.same("verdict", without["verdict"], verdict_of(question, compared, without["comparisons"], ()))
