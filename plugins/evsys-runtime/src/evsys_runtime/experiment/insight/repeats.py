"""The parts of a plan already on record: the whole experiment with its verdict, and configs that failed and never
completed.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from evsys.errors import StoreError
from evsys_record import PastExperiment
from evsys_record.files import read_json
from evsys_record.history import past_experiment
from evsys_record.index import Index
from evsys_record.leaves import short_leaves
from evsys_record.marks import with_marks
from evsys_record.text import cut, list_names
from evsys_runtime.config.plan import Plan
from evsys_runtime.experiment.insight.failures import BAD
from evsys_runtime.experiment.lineage.experiments import earlier_index

__all__ = ["repeated_experiment", "repeats", "repeats_on_record"]

_MOST_NAMED = 3
_LONGEST = 160

type Places = Mapping[str, Sequence[tuple[int, str]]]
"""The arms on record that have the config of a planned one, by its name: the number of the experiment in the index, and the arm."""


def repeats_on_record(plan: Plan, experiments: Path, tell: Callable[[str], None]) -> tuple[str, ...]:
    """`repeats`, looked up in a folder of experiments; `tell` gets why that can't be done. Blocking."""
    with earlier_index(experiments, None, tell) as index:
        try:
            return () if index is None else repeats(plan, index)
        except (StoreError, sqlite3.Error) as exc:
            tell(f"whether this repeats an earlier experiment can't be looked up: {exc}")
            return ()


def repeats(plan: Plan, index: Index) -> tuple[str, ...]:
    """A warning if the experiment repeats an earlier one, and for each arm whose config failed before and never completed.

    Configs are compared without names and seeds. A plan that names the earlier experiment as its parent isn't an accidental repeat.
    """
    if not index.rows("SELECT 1 FROM arm LIMIT 1"):
        return ()
    from evsys_runtime.experiment.state.resolved_tree import (
        resolved_runs,  # half of the runtime, for a question asked seldom
    )

    found: dict[str, list[tuple[int, str]]] = {}
    for name, run in resolved_runs(plan).items():
        found[name] = _places(index, short_leaves(run))
    if not any(found.values()):
        return ()
    whole = _whole(plan, index, found)
    texts = () if whole is None else (_repeat_text(whole[0], same_seeds=whole[1]),)
    return (*texts, *dict.fromkeys(_failure_lines(index, found)))


def _places(index: Index, config: Mapping[str, str]) -> list[tuple[int, str]]:
    numbers = []
    for leaf in config.items():
        rows = index.rows("SELECT id FROM leaf WHERE path = ? AND value = ?", leaf)
        if not rows:
            return []
        numbers.append(int(rows[0][0]))
    same = array("I", sorted(numbers)).tobytes()
    query = (
        "SELECT a.experiment, a.arm FROM arm a JOIN experiment e ON e.id = a.experiment "
        "WHERE NOT e.dry AND a.leaves = ?"
    )
    return [(int(experiment), str(arm)) for experiment, arm in index.rows(query, (same,))]


def repeated_experiment(plan: Plan, index: Index) -> tuple[PastExperiment, bool] | None:
    """The newest experiment on record with these arms and no others, judged by the same metric and claim, and whether it
    had the same seeds; None if there isn't one, or if the plan names it as its parent.
    """
    from evsys_runtime.experiment.state.resolved_tree import resolved_runs

    found = {name: _places(index, short_leaves(run)) for name, run in resolved_runs(plan).items()}
    return _whole(plan, index, found)


def _whole(plan: Plan, index: Index, found: Places) -> tuple[PastExperiment, bool] | None:
    experiments = [{experiment for experiment, _ in places} for places in found.values()]
    common = set.intersection(*experiments) if experiments else set()
    for number in common:
        ((arms,),) = index.rows("SELECT count(*) FROM arm WHERE experiment = ?", (number,))
        if arms != len(found):
            common = common - {number}
    if not common:
        return None
    places = ", ".join("?" * len(common))
    query = (
        f"SELECT e.folder FROM experiment e WHERE e.id IN ({places}) AND EXISTS (SELECT 1 FROM run r WHERE "  # noqa: S608
        "r.experiment = e.id AND r.state = 'completed') ORDER BY e.moment DESC, e.folder DESC"
    )
    metadata = plan.experiment.metadata
    for (folder,) in index.rows(query, tuple(common)):
        past = past_experiment(index, folder)
        success = str(plan.success) if plan.success else None
        if past is None or past.metric != success or (past.claim or "better") != metadata.claim:
            continue
        if metadata.parent_experiment_id == folder:
            return None
        return past, _seeds(index, folder) == _planned_seeds(plan)
    return None


def _repeat_text(past: PastExperiment, *, same_seeds: bool) -> str:
    seeds = "the same seeds" if same_seeds else "other seeds"
    verdict = with_marks(past.verdict or past.status, past.subject, past.marks)
    effect = "" if past.effect is None else f", effect {past.effect:+.3g} of {past.best_arm}"
    return (
        f"it repeats {past.experiment_id} with {seeds}: {verdict}{effect} (evsys show {past.experiment_id})"
    )


def _planned_seeds(plan: Plan) -> set[tuple[int, int]]:
    base = plan.experiment.base_seed
    return {(base if arm.seed_override is None else arm.seed_override, arm.repeat) for arm in plan.arms}


def _seeds(index: Index, folder: str) -> set[tuple[int, int]]:
    arms = read_json(index.experiments / folder / "resolved.json").get("arms") or ()
    return {(int(arm.get("base_seed") or 0), int(arm.get("repeat") or 0)) for arm in arms}


def _failure_lines(index: Index, found: Places) -> Iterator[str]:
    query = (
        "SELECT e.folder, r.state, r.failure FROM run r JOIN experiment e ON e.id = r.experiment "  # noqa: S608
        f"WHERE r.experiment = ? AND r.arm = ? AND r.state IN ('completed', {', '.join('?' * len(BAD))})"
    )
    for name, places in found.items():
        runs = [run for place in places for run in index.rows(query, (*place, *BAD))]
        if not runs or any(state == "completed" for _, state, _ in runs):
            continue
        latest, state, failure = max(runs)
        folders = sorted({folder for folder, _, _ in runs}, reverse=True)
        message = cut((failure or "").strip().partition("\n")[0], _LONGEST)
        times = "" if len(folders) == 1 else f" in {len(folders)} experiments"
        yield (
            f"arm {name}: the same config failed{times} and never completed "
            f"({list_names(folders, _MOST_NAMED)}; {latest} {state}{f': {message}' if message else ''})"
        )
