"""Results of runs alongside their rollouts: rewards, counts and metrics of every scoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evsys_record.proofs import proven_name
from evsys_runtime.audit.evidence import Evidence, Run, Scoring, evaluation_lines
from evsys_runtime.audit.findings import Section
from evsys_runtime.audit.metrics import task_metric

__all__ = ["check_rollouts"]

_OF_A_RESULT = (
    "task_rewards",
    "scored",
    "no_score",
    "benchmark_hash",
    "verifier_hash",
    "num_samples",
    "clusters",
)


def check_rollouts(section: Section, evidence: Evidence) -> None:
    """Check each scoring of each run that has a result."""
    lines = {run.run_id: {_key(line): line for line in evaluation_lines(run)} for run in evidence.runs}
    for entry, metric in sorted(_metrics_of_plugins(evidence)):
        why = "a metric of a plugin, and an audit runs no plugins"
        section.section("rollouts", f"benchmark {entry}").unchecked(metric, why)
    for run in evidence.runs:
        part = section.section("rollouts", run.run_id)
        if not run.result:
            _check_missing_result(part, evidence, run)
            continue
        for scoring in run.scorings:
            _check_scoring(part, evidence, scoring, lines)


def _check_missing_result(part: Section, evidence: Evidence, run: Run) -> None:
    """A run that ended has a result; one that never began is listed as such."""
    if run.folder is None or run.run_id in (evidence.facts.get("not_started") or {}):
        part.unchecked("run_result.json", "the run never began")
    else:
        part.holds("run_result.json", False, f"{run.folder.name}/run_result.json is missing")


def _check_scoring(
    section: Section,
    evidence: Evidence,
    scoring: Scoring,
    lines: Mapping[str, Mapping[Any, Mapping[str, Any]]],
) -> None:
    benchmark, step, model = scoring.key
    name = f"{benchmark} at step {step}" + ("" if model is None else f" of {model}")
    part, tree = section.section("rollouts", f"{section.about}: {name}"), scoring.tree
    written = lines[scoring.of or section.about].get(scoring.key)
    if written is not None:
        told = {key: tree[key] for key in _OF_A_RESULT}
        odd = [key for key, value in told.items() if written.get(key) != value]
        detail = f"evaluations.jsonl and run_result.json have different values of {', '.join(odd)}"
        part.holds("evaluations.jsonl", not odd, detail)
    if tree["status"] not in ("completed", "invalid"):
        return
    if scoring.of is None:
        _check_missing_rollouts(part, evidence, scoring, lines)
        return
    _check_rewards(part, scoring)
    _check_metrics(part, evidence, scoring)


def _check_missing_rollouts(
    part: Section, evidence: Evidence, scoring: Scoring, lines: Mapping[str, Mapping[Any, Any]]
) -> None:
    """Rollouts may be in another experiment only for a fork that didn't score anything itself."""
    forked = (evidence.facts.get("launch") or {}).get("forks") is not None
    if forked and not any(scoring.key in each for each in lines.values()):
        part.unchecked("rollouts", "they are in the record of the experiment that this one branches off from")
        return
    part.holds("rollouts", False, "no rollouts on record have the rewards of this scoring")


def _check_rewards(part: Section, scoring: Scoring) -> None:
    found, tree = scoring.rewards, scoring.tree
    told = {task: tuple(rewards) for task, rewards in tree["task_rewards"].items() if rewards}
    odd = sorted(task for task in found.keys() | told.keys() if found.get(task, ()) != told.get(task, ()))
    more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
    part.holds(
        "rewards", not odd, f"the rollouts have other rewards than the result of {', '.join(odd[:3])}{more}"
    )
    samples = [reward for one in scoring.rollouts.values() for reward in one.values()]
    part.same("scored", tree["scored"], sum(reward is not None for reward in samples))
    part.same("no_score", tree["no_score"], sum(reward is None for reward in samples))
    part.same("rollouts", tree["tasks"] * tree["num_samples"], len(samples))


def _check_metrics(part: Section, evidence: Evidence, scoring: Scoring) -> None:
    entry = evidence.entry(proven_name(scoring.key[0]))
    for name, metric in scoring.tree["metrics"].items():
        known = task_metric(name, entry)
        if known is not None:
            values = [*known.values({t: r for t, r in scoring.rewards.items() if r}).values()]
            part.close(name, metric["value"], sum(values) / len(values) if values else None)


def _metrics_of_plugins(evidence: Evidence) -> set[tuple[str, str]]:
    """The metrics of each entry that aren't among the standard ones."""
    return {
        (entry, metric)
        for run in evidence.runs
        for scoring in run.scorings
        for metric in scoring.tree["metrics"]
        if task_metric(metric, evidence.entry(entry := proven_name(scoring.key[0]))) is None
    }


def _key(evaluation: Mapping[str, Any]) -> tuple[str, int, str | None]:
    return evaluation["benchmark"], int(evaluation["step"]), evaluation["model"]
