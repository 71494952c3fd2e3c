"""An experiment on record as the file of the next one: one arm of it, or two, changed or with other seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import StoreError
from evsys_record.files import read_json
from evsys_runtime.config import paths, trees
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.names import slug

__all__ = ["Resolved"]

_OF_ENTRY = frozenset(attrs.fields_dict(BenchmarkConfig))
"""Keys of an entry in a file; resolved.json knows more of it."""

_KEPT = ("version", "data_store", "deterministic", "select", "max_concurrent_arms", "budget", "watchdog")
_SEED_STEP = 1000
"""How far the seeds of a repetition are from those of what it repeats."""


class Resolved:
    """resolved.json of an experiment.

    Args:
        directory: the experiment's folder.

    Raises:
        StoreError: it has none that can be read.
    """

    def __init__(self, directory: Path) -> None:
        self.experiment_id = directory.name
        self.tree = read_json(directory / "resolved.json")
        self.runs: dict[str, Mapping[str, Any]] = {}
        for arm in self.tree.get("arms", ()):
            if "stage" in arm or not isinstance(arm.get("run"), Mapping):
                raise StoreError(f"{directory.name} has arms of several stages, which can't be taken apart")
            self.runs.setdefault(str(arm["arm"]), arm["run"])
        if "metadata" not in self.tree or "benchmarks" not in self.tree:
            raise StoreError(f"resolved.json of {directory.name} is of another form")

    def file(
        self,
        arm: str,
        *,
        hypothesis: str,
        repeats: int,
        values: Mapping[str, Any] | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """The experiment file of a child that trains this arm, and the baseline where that is an arm, with fresh seeds.

        Args:
            arm: its name.
            hypothesis: why.
            repeats: how often.
            values: what is changed in it, by path, such as `data.transforms[0].params.n`; the arm as it was is the baseline then,
                and the changed one is called by what was changed.
            name: of the changed arm; without it, one made of `values`.
            limit: how many tasks the entries are to have that have a limit.
        """
        metadata = {
            **self.tree["metadata"],
            "hypothesis": hypothesis,
            "parent_experiment_id": self.experiment_id,
            "benchmark": [_entry(entry, limit) for entry in self.tree["benchmarks"]],
        }
        run = self.runs[arm]
        if values:
            for path, value in values.items():
                run = trees.put(run, paths.parse(path), value)
            run = {**run, "name": name or _changed_name(arm, values)}
            metadata["baseline"] = arm
        baseline = metadata.get("baseline")
        runs = [run]
        if baseline not in (None, BASE_MODEL, run.get("name", arm)) and baseline in self.runs:
            runs.insert(0, self.runs[str(baseline)])
        tree = {
            **{key: self.tree.get(key) for key in _KEPT},
            "name": f"{self.tree.get('name') or 'next'}-next",
            "metadata": metadata,
            "n_repeats": repeats,
            "base_seed": int(self.tree.get("base_seed") or 0) + _SEED_STEP,
            **({"run": run} if len(runs) == 1 else {"runs": runs}),
        }
        found: dict[str, Any] = _drop_empty(tree)
        return found


def _entry(entry: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    kept = {key: value for key, value in entry.items() if key in _OF_ENTRY}
    if not kept.get("allow_test_selection"):
        kept.pop("allow_test_selection", None)
    # The success metric is called by the name that results have, which is the short one.
    kept["metrics"] = [
        {**metric, "kind": str(metric["kind"]).rpartition("/")[2]} for metric in entry.get("metrics") or ()
    ]
    if limit is not None and entry.get("limit") is not None:
        kept["limit"] = max(limit, entry["limit"])
    return kept


def _changed_name(arm: str, values: Mapping[str, Any]) -> str:
    """A name that says what was changed, as arms of a matrix have it."""
    name = slug("-".join(f"{path.rpartition('.')[2]}-{value}" for path, value in values.items()))
    return name if name != slug(arm) else f"{name}-next"


def _drop_empty(value: Any) -> Any:
    """Without keys that say nothing: null, and empty lists and mappings."""
    if isinstance(value, Mapping):
        kept = {key: _drop_empty(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each is not None and each not in ([], {})}
    if isinstance(value, list | tuple):
        return [_drop_empty(each) for each in value]
    return value
