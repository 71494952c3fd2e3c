"""Why a scoring came from the result cache, or didn't: what the runs of an experiment wrote down about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from evsys.errors import ConfigError
from evsys_record.files import read_json
from evsys_record.jsonl import read_jsonl
from evsys_record.lookups import Lookup
from evsys_runtime.evaluation.result_cache import LOOKUPS

__all__ = ["lookups"]


def lookups(folder: Path, *, benchmark: str | None = None) -> list[Lookup]:
    """The lookups of an experiment's runs or of one run; of a scoring that was made again, the last.

    Args:
        folder: of an experiment or of a run.
        benchmark: only scorings of this entry.

    Raises:
        ConfigError: there is no such record, or no such entry.
        StoreError: a record can't be read.
    """
    found = {
        (lookup.run, lookup.benchmark, lookup.step, lookup.model): lookup
        for run in _runs(folder)
        for lookup in _read_lookups(run)
    }
    wanted = [lookup for lookup in found.values() if benchmark in (None, lookup.benchmark)]
    if not wanted and benchmark is not None:
        known = sorted({lookup.benchmark for lookup in found.values()})
        message = f"{folder.name} has no scoring of {benchmark!r} on record that looked into the cache"
        raise ConfigError(
            message, hint=f"it has {', '.join(known)}" if known else "it was run with --no-cache"
        )
    return wanted


def _runs(folder: Path) -> list[Path]:
    if (folder / "run.json").is_file():
        return [folder]
    if not (folder / "experiment.json").is_file():
        raise ConfigError(
            f"{folder} is neither an experiment nor a run", hint="name one, with /<run> for one of its runs"
        )
    return sorted(path.parent for path in folder.glob("runs/*/run.json"))


def _read_lookups(run_dir: Path) -> Iterator[Lookup]:
    run_id = str(read_json(run_dir / "run.json")["run_id"])
    fields = {field.name for field in attrs.fields(Lookup)}
    for line in read_jsonl(run_dir / LOOKUPS, missing_ok=True):
        given = {name: value for name, value in line.items() if name in fields}
        yield Lookup(**{**given, "run": run_id, "missing": tuple(line.get("missing", ()))})
