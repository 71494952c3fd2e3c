"""The noise floor: how far runs that differ by their seeds alone fall apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from evsys_runtime.audit.distributions import studentized_maximum
from evsys_runtime.audit.evidence import Evidence
from evsys_runtime.audit.findings import Section
from evsys_runtime.audit.question import BASE_MODEL, Question
from evsys_runtime.audit.sides import arm_runs, final_scoring, untrained_scoring

__all__ = ["check_noise", "limit_of"]


def limit_of(noise: Mapping[str, Any], arms: int, level: float) -> float:
    """The value that one of this many equal arms exceeds with probability `level`."""
    multiple = studentized_maximum(arms, len(noise["runs"]) - 1, level)
    return max(float(noise["largest"]), multiple * float(noise["standard_deviation"]))


def check_noise(part: Section, evidence: Evidence, question: Question) -> None:
    """Check the noise floor on record, if there is one."""
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
        limit = limit_of(noise, count, question.level)
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
