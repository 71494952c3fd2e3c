"""`evsys context`: what to know before the next experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import StoreError
from evsys_record import PastExperiment
from evsys_record.files import open_to_read
from evsys_record.index import Index
from evsys_record.text import cut
from evsys_runtime.config.settings import project_settings
from evsys_runtime.experiment.budget.project_budget import paid_usages, project_limits
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord
from evsys_runtime.experiment.insight.best_recipes import best_recipes
from evsys_runtime.experiment.insight.failures import failure_classes
from evsys_runtime.experiment.insight.findings import Wording, findings, sentences
from evsys_runtime.experiment.insight.known_experiments import Known
from evsys_runtime.experiment.insight.markdown import SECTIONS
from evsys_runtime.experiment.insight.results import Context, FailureClass, Spent, WayToFail
from evsys_runtime.experiment.insight.text_budget import Whole

__all__ = ["context_of"]

_LONGEST_ABOUT = 300
_LONGEST_README = 1 << 20
_TELLING = 2
"""Configs that have something in common which is worth a word."""

_MOST_METRICS = 2
"""Metrics whose best recipe is named."""

_NONE = "none"


def context_of(index: Index, project: Path) -> Whole:
    """All knowledge, in the order of its use, however long.

    Args:
        index: of the experiments on record, as of now.
        project: the project's folder, whose README says what it is about.
    """
    on_record = ArmsOnRecord.from_index(index)
    known = Known.of(index, on_record)
    experiments = known.experiments
    metrics = _count_names(past.metric for past in experiments)
    judged = [name for name in metrics if name != _NONE]
    found = findings(known, usual=judged[0] if judged else None)
    head = Context(
        project=project.name,
        about=_project_summary(project),
        experiments=len(experiments),
        runs=sum(past.runs for past in experiments),
        verdicts=_count_names(map(_verdict, experiments)),
        metrics=metrics,
        goals={
            goal: n
            for goal, n in _count_names(past.project_goal_id for past in experiments).items()
            if goal != _NONE
        },
        spent=_total_spending(index, experiments),
        budget=project_limits(project_settings(project).budget, [index]),
    )
    best = best_recipes(index, known, on_record, judged[:_MOST_METRICS], project)
    sections: dict[str, Sequence[Wording[Any]]] = {
        "best": [Wording(each, each) for each in best],
        "failures": list(_ways(index, on_record, experiments)),
    }
    sections |= {name: getattr(found, name) for name in SECTIONS if name not in sections}
    return Whole(head=head, sections={name: sections[name] for name in SECTIONS})


def _verdict(past: PastExperiment) -> str | None:
    return "retracted" if past.retracted is not None else "edited" if past.edited else past.verdict


def _ways(
    index: Index, on_record: ArmsOnRecord, experiments: Sequence[PastExperiment]
) -> Iterator[Wording[WayToFail]]:
    """Of runs, and of conclusions that can't be drawn."""
    yield from (_way(each) for each in failure_classes(index, on_record))
    invalid: dict[str, list[PastExperiment]] = {}
    for past in experiments:
        if _verdict(past) == "INVALID":
            invalid.setdefault(past.reason or "", []).append(past)
    for reason, group in invalid.items():
        way = WayToFail(
            way=f"INVALID conclusion: {reason}",
            runs=sum(past.runs for past in group),
            arms=sum(len(past.comparisons) for past in group),
            latest=group[0].experiment_id,
        )
        yield Wording(way, way)


def _way(each: FailureClass) -> Wording[WayToFail]:
    elsewhere = len(each.experiments) - 1
    clean = each.region is not None and not each.region.completed_inside and each.region.failed >= _TELLING
    region = each.region if clean else None
    said = [each.message]
    if region is not None:
        said.append(
            f"{region.failed} configs failed there, none completed, elsewhere {region.completed_outside} did"
        )
    if elsewhere:
        said.append(f"in {elsewhere} more experiment{'s' * (elsewhere != 1)}")
    brief = WayToFail(
        way=each.name,
        runs=each.runs,
        arms=each.arms,
        latest=each.experiments[0],
        region=None if region is None else str(region),
        known_bad=region is not None and region.known_bad,
    )
    return Wording(brief, attrs.evolve(brief, says=sentences(*said)))


def _total_spending(index: Index, experiments: Sequence[PastExperiment]) -> Spent:
    used = list(paid_usages(index, experiments))
    return Spent(
        cost_usd=round(sum(each.cost_usd or 0.0 for each in used), 4),
        unpriced=sum(bool(each.without_price) for each in used),
        trained_tokens=sum(each.trained_tokens for each in used),
        sampled_tokens=sum(each.prompt_tokens + each.completion_tokens for each in used),
        seconds=round(sum(past.seconds or 0.0 for past in experiments), 1),
    )


def _count_names(names: Any) -> dict[str, int]:
    """How many of each, the most frequent first."""
    counts = Counter(name or _NONE for name in names)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _project_summary(project: Path) -> str | None:
    """The first paragraph of the project's README that is not a heading."""
    path = project / "README.md"
    try:
        with open_to_read(path) as stream:
            text = stream.read(_LONGEST_README).decode("utf-8", "replace")
    except StoreError:
        return None
    for paragraph in text.split("\n\n"):
        lines = [line for line in paragraph.strip().splitlines() if not line.startswith("#")]
        words = " ".join(" ".join(lines).split())
        if words:
            return cut(words, _LONGEST_ABOUT)
    return None
