"""The reasons not to run an experiment: its question is decided on record, or its arms lie where all others failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from evsys_record.index import Index
from evsys_record.leaves import short_leaves
from evsys_runtime.config.plan import Plan
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.insight.failure_regions import FailureRegions
from evsys_runtime.experiment.insight.failures import failure_classes
from evsys_runtime.experiment.insight.repeats import repeated_experiment

__all__ = ["KnownOutcome", "known_outcomes"]

_SETTLED = ("SUPPORTED", "REFUTED")


@attrs.frozen(kw_only=True)
class KnownOutcome:
    """A reason not to run an experiment: `decided` or `known_bad`, the experiment that it comes from, and a sentence."""

    kind: str
    experiment_id: str
    says: str


def known_outcomes(config: str | Path, overrides: Sequence[str] = ()) -> list[KnownOutcome]:
    """The reasons not to run an experiment file, from the record of its project; reads nothing but its index.

    Decided is an experiment with these arms, judged alike, with a verdict that holds and needs no other run: any verdict for
    the same seeds, which give the same numbers, else REFUTED, or SUPPORTED as a claim about the recipe.

    Raises:
        ConfigError: the file has problems.
        StoreError: the folder of the records can't be listed.
    """
    plan = load_experiment(config, overrides=overrides)
    experiments = plan.project_root / plan.experiment.output_dir
    if not experiments.is_dir():
        return []
    with Index(experiments) as index:
        index.refresh()
        return [*_decisions(plan, index), *_known_bad(plan, index)]


def _decisions(plan: Plan, index: Index) -> Iterator[KnownOutcome]:
    found = repeated_experiment(plan, index)
    if found is None:
        return
    past, same_seeds = found
    holds = past.verdict not in (None, "INVALID") and not (past.retracted or past.rests_on or past.edited)
    settled = past.verdict == "REFUTED" or (past.verdict == "SUPPORTED" and past.subject == "recipe")
    if holds and (same_seeds or settled):
        effect = "" if past.effect is None else f", effect {past.effect:+.3g}"
        seeds = "with the same seeds, which give the same numbers" if same_seeds else "with other seeds"
        says = (
            f"{past.experiment_id} decided this already: {past.verdict} (this {past.subject or 'experiment'}){effect}, "
            f"and this run repeats it {seeds}. Read `evsys why {past.experiment_id}`, then change the arms or the "
            f"question; name it as metadata.parent_experiment_id to repeat it on purpose."
        )
        yield KnownOutcome(kind="decided", experiment_id=past.experiment_id, says=says)


def _known_bad(plan: Plan, index: Index) -> Iterator[KnownOutcome]:
    from evsys_runtime.experiment.state.resolved_tree import resolved_runs

    known = FailureRegions.from_classes(failure_classes(index))
    if not known.classes:
        return
    planned = {name: short_leaves(run) for name, run in resolved_runs(plan).items()}
    for region, each in known.classes:
        for warning in FailureRegions(classes=[(region, each)]).arms(planned):
            says = f"{warning}. Take these values out; `evsys why {each.experiments[0]}` has the failure."
            yield KnownOutcome(kind="known_bad", experiment_id=each.experiments[0], says=says)
