"""`next`: follows what `evsys next` suggests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from evsys.types import Proposal, ResearchState, Stop
from evsys_autoresearch.levers import Levers, apply_changes, changes_of
from evsys_autoresearch.researchers.climbing import Greedy
from evsys_autoresearch.researchers.space import key_of, oriented
from evsys_record.index import Index
from evsys_runtime.experiment.insight.next_steps import next_steps
from evsys_runtime.experiment.insight.results import NextStep

__all__ = ["Next"]


class Next:
    """Runs the first suggestion of `evsys next` that changes levers only and wasn't tried: values beyond the edge of what was tried and
    in its gaps, levers that nothing moved, open questions settled with another seed. Without one it moves the best arm.
    """

    name: ClassVar[str] = "next"
    uses_context: ClassVar[bool] = False

    async def propose(self, state: ResearchState) -> Proposal | Stop:
        """The first suggestion that is new."""
        levers = Levers(written=tuple(state.levers))
        tried = {key_of(each.changes) for each in state.rounds}
        known = {each.experiment: each for each in state.rounds if each.experiment}
        for step in _suggestions(state.records):
            base = known.get(step.experiment)
            changes = {**(base.changes if base is not None else {}), **_difference_of(step)}
            if key_of(changes) not in tried and all(levers.covers_path(path) for path in changes):
                return Proposal(
                    config=apply_changes(state.start, changes),
                    hypothesis=f"evsys next: {step.learns}",
                    expected_effect=state.minimum_effect,
                    builds_on=(base.number,) if base is not None else (),
                )
        return await Greedy(spread=_spread(state)).propose(state)


def _suggestions(records: Path | None) -> Iterator[NextStep]:
    """The suggestions that vary an arm on record."""
    if records is None or not records.is_dir():
        return
    with Index(records) as index:
        index.refresh()
        steps = next_steps(index, limit=None).steps
    for step in steps:
        if (
            step.kind in ("neighbour", "lever")
            and step.config is not None
            and len(step.config.get("runs", ())) > 1
        ):
            yield step


def _difference_of(step: NextStep) -> dict[str, Any]:
    """The values, by path in the experiment file, by which the suggested arm differs from the one that it varies."""
    assert step.config is not None
    runs = [{key: value for key, value in run.items() if key != "name"} for run in step.config["runs"]]
    return {f"run.{path}": value for path, value in changes_of(runs[0], runs[-1]).items()}


def _spread(state: ResearchState) -> float:
    """Steps shrink once rounds stop to improve: half as far after three in a row."""
    best, since = oriented(state, state.start_score or 0.0), 0
    for each in state.rounds:
        better = each.score is not None and oriented(state, each.score) > best
        best, since = (oriented(state, each.score or 0.0), 0) if better else (best, since + 1)
    return max(0.05, 0.3 * 0.5 ** (since // 3))
