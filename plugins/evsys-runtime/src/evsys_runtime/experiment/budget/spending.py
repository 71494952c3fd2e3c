"""The usage of an experiment's runs according to their records: a killed process couldn't report it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import attrs

from evsys.errors import StoreError
from evsys.types import Usage
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.jsonl import read_jsonl
from evsys_record.run_record import PHASES, RunRecord
from evsys_runtime.evaluation.cache_marks import tells_cached
from evsys_runtime.experiment.budget.budget import COUNTED

__all__ = ["recorded_run_spending", "recorded_spending", "usage_of_run"]

_NOTHING: Final = dict.fromkeys(COUNTED, 0.0)


@attrs.define(kw_only=True)
class _RunSpending:
    """The spending of one run over all its attempts according to its files, including abandoned ones, since they
    were paid for.
    """

    used: dict[str, float] = attrs.field(factory=lambda: dict(_NOTHING))
    newest: str = ""

    def observe_time(self, line: Mapping[str, Any]) -> None:
        """A line was written at its time, so the experiment ran until then."""
        self.newest = max(self.newest, line["time"])

    def count(self, usage: Usage) -> None:
        """A rollout's, or a verdict's."""
        self.used["tokens"] += usage.tokens
        self.used["usd"] += usage.cost_usd or 0.0


def recorded_spending(
    record: ExperimentRecord, tell: Callable[[str], None] = lambda _text: None
) -> Mapping[str, Any] | None:
    """The spending in experiment.json, or in the records of the runs if that is more.

    They show completed steps, the tokens trained in them, and the usage of rollouts. They don't show the cost of
    training: its last recorded value counts.

    Args:
        record: the experiment's.
        tell: is notified of a run whose files can't be read; of that the smaller amount may count.

    Returns:
        In the form of `ExperimentBudget.facts`, as far as a later launch needs that; None if nothing was spent.
    """
    known: Mapping[str, Any] = record.facts.get("budget") or {}
    runs = {run_id: dict(found) for run_id, found in known.get("runs", {}).items()}
    newest = ""
    for run in record.runs():
        try:
            shown = _read_run_spending(run)
        except (StoreError, KeyError, TypeError, ValueError) as error:
            tell(f"what {run.directory.name} spent may be more than is counted: {error}")
            continue
        newest = max(newest, shown.newest)
        found = runs.get(run.run_id)
        if found is None and not any(shown.used.values()):
            continue
        found = found or {**_NOTHING, "ended": (run.read_result() or {}).get("status")}
        more = {name: max(float(found[name]), amount) for name, amount in shown.used.items()}
        runs[run.run_id] = {**found, **more}
    if not runs and not known:
        return None
    spent = dict(known.get("spent", {}))
    if newest and known.get("kept"):
        spent["wall_seconds"] = float(spent.get("wall_seconds", 0.0)) + _seconds_after(known["kept"], newest)
    return {**known, "spent": spent, "runs": runs}


def recorded_run_spending(run: RunRecord) -> dict[str, float]:
    """The amounts that a run has spent over all its attempts, as far as its files show it.

    Raises:
        StoreError, KeyError, TypeError, ValueError: they can't be read.
    """
    return _read_run_spending(run).used


def _read_run_spending(run: RunRecord) -> _RunSpending:
    shown = _RunSpending()
    steps, tokens = _steps(run, shown)
    shown.used["steps"] += steps
    shown.used["tokens"] += tokens
    for _, moment, paid in _rollouts(run):
        shown.newest = max(shown.newest, moment)
        for used in paid:
            shown.count(used)
    return shown


def _steps(run: RunRecord, shown: _RunSpending) -> tuple[int, int]:
    """The steps done in all attempts, and the tokens trained in them."""
    done, tokens = set(), 0
    for line in read_jsonl(run.directory / "journal.jsonl", missing_ok=True):
        shown.observe_time(line)
        if line["event"] == "done":
            done.add((line["attempt"], line["step"]))
    for line in read_jsonl(run.directory / "training" / "metrics.jsonl", missing_ok=True):
        shown.observe_time(line)
        if (line["attempt"], line["step"]) in done:
            tokens += int(line["values"].get("tokens") or 0)
    return len(done), tokens


def _rollouts(run: RunRecord) -> Iterator[tuple[str, str, tuple[Usage, ...]]]:
    """The rollouts of all attempts at a run: phase, time, and what was paid for."""
    known: set[tuple[object, ...]] = set()
    for phase in PHASES:
        for line in read_jsonl(run.directory / phase / "rollouts.jsonl", missing_ok=True):
            paid, facts, rollout = tuple(_rollout_usages(line["rollout"])), line["facts"], line["rollout"]
            about = (line["step"], facts.get("benchmark"), facts.get("model"))
            key = (phase, *about, rollout["task_id"], rollout["sample_index"], paid)
            # A later attempt has from the cache what an earlier one made, with the very seconds that it took.
            again = key in known and any(used.seconds for used in paid)
            known.add(key)
            yield phase, line["time"], () if again else paid


def usage_of_run(run: RunRecord) -> Usage:
    """The usage of all attempts at a run for evaluations and training steps, according to its files.

    Raises:
        StoreError, KeyError, TypeError, ValueError: they can't be read.
    """
    scored = (used for phase, _, paid in _rollouts(run) if phase != "training" for used in paid)
    return sum(scored, Usage(trained_tokens=_steps(run, _RunSpending())[1], cost_usd=0.0))


def _rollout_usages(rollout: Mapping[str, Any]) -> Iterator[Usage]:
    """The usage of a recorded rollout and its verdict, unless it was paid for before."""
    if not tells_cached(rollout["metadata"]):
        for used in (rollout["usage"], rollout["score"].get("usage")):
            if used is not None:
                yield Usage(**used)


def _seconds_after(kept: str, newest: str) -> float:
    """Seconds from one time to another; 0 where that is earlier."""
    return max(0.0, (datetime.fromisoformat(newest) - datetime.fromisoformat(kept)).total_seconds())
