"""Runs of earlier experiments that were the same as one of this: same data, recipe, seed, benchmarks and versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys_record.files import read_json
from evsys_record.index import Index
from evsys_runtime.background import in_background
from evsys_runtime.experiment.lineage.experiments import earlier_index, query_index

__all__ = ["EarlierRun", "EarlierRuns", "runs_known_as"]

_COMPLETED = (
    "SELECT e.folder, r.run_id, r.folder, r.identity FROM run r JOIN experiment e ON e.id = r.experiment "
    "WHERE r.state = 'completed' AND NOT e.dry AND e.folder != ? AND r.folder IS NOT NULL AND r.identity IS NOT NULL"
)


@attrs.frozen(kw_only=True)
class EarlierRun:
    """A run that completed; `directory` is its record."""

    experiment_id: str
    run_id: str
    directory: Path

    def facts(self) -> dict[str, Any]:
        """The contents of its run.json.

        Raises:
            StoreError: it can't be read.
        """
        return read_json(self.directory / "run.json")


def runs_known_as(index: Index, identity: str, own: str | None) -> list[EarlierRun]:
    """The completed runs of an identity in other experiments than `own`, the newest first.

    Raises:
        StoreError: the index can't be read.
    """
    rows = index.rows(f"{_COMPLETED} AND r.identity = ? ORDER BY e.moment DESC", (own or "", identity))
    return [_earlier_run(index.experiments, *row) for row in rows]


def _earlier_run(experiments: Path, experiment: str, run_id: str, folder: str, _identity: str) -> EarlierRun:
    directory = experiments / experiment / "runs" / folder
    return EarlierRun(experiment_id=experiment, run_id=run_id, directory=directory)


class EarlierRuns:
    """The completed runs of a folder of experiments by their identity, looked up once for all arms.

    Args:
        experiments: the folder of all experiments.
        own: the experiment that asks.
        tell: gets a line if they can't be looked up.
    """

    def __init__(self, experiments: Path, own: str, *, tell: Callable[[str], None]) -> None:
        self._experiments = experiments
        self._own = own
        self._tell = tell
        self._found: asyncio.Future[Mapping[str, EarlierRun]] | None = None

    async def find(self, identity: str) -> EarlierRun | None:
        """The newest run of this identity; None where there is none, or it can't be looked up."""
        if self._found is None:
            self._found = asyncio.ensure_future(in_background(self._all))
        return (await asyncio.shield(self._found)).get(identity)

    def _all(self) -> Mapping[str, EarlierRun]:
        wanted = "whether a run was there before"
        with earlier_index(self._experiments, self._own, self._tell, wanted=wanted) as index:
            rows = query_index(
                index, f"{_COMPLETED} ORDER BY e.moment", (self._own,), self._tell, wanted=wanted
            )
        return {row[3]: _earlier_run(self._experiments, *row) for row in rows}
