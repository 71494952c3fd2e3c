"""Experiments on record that can continue: which are meant, and what is needed to read them again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, StoreError
from evsys_record.experiment_record import RUNNING, ExperimentRecord
from evsys_record.lock import ExperimentLock
from evsys_runtime.config import overrides as overrides_
from evsys_runtime.config.root import find_project_root
from evsys_runtime.experiment.state.facts import KEPT_OPTIONS, STORED
from evsys_runtime.experiment.state.resolved_tree import ADJUSTABLE
from evsys_runtime.experiment.state.secrets import redact_override

__all__ = ["CONCLUDED", "Unfinished", "newest_unfinished"]

COMPLETE = "completed"
CONCLUDED = (COMPLETE, "partial", "invalid", "collapsed", "stopped")
"""Statuses of experiments that came to their conclusion, regardless of their runs."""

_JUDGED = (COMPLETE, "invalid", "stopped")
"""Statuses of experiments that came to their end; of a complete one there is more to do only if `to_resume` names runs."""


@attrs.frozen(kw_only=True)
class Unfinished:
    """An experiment that may continue: its record, its project, how it was launched.

    `overrides` are its `--set` options, `adjusted` those of them given to continue, `parent` the experiment that it
    belongs to. `stored` has the versions that names of stored data meant. `complete` is True if there is nothing left to do according to its status.
    """

    directory: Path
    project_root: Path
    overrides: tuple[str, ...]
    adjusted: tuple[str, ...]
    parent: str | None
    options: Mapping[str, bool]
    complete: bool
    stored: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    @classmethod
    def read(
        cls,
        directory: Path,
        *,
        overrides: Sequence[str] = (),
        injected: Collection[str] = (),
        forks: bool = False,
    ) -> Unfinished:
        """Read a record.

        Args:
            directory: the experiment's folder.
            overrides: `path=value` texts for what is `ADJUSTABLE`, and for those whose values the record doesn't have, since
                they were secret.
            injected: the options that replace parts of the experiment and are given again, such as `train_fn`.
            forks: a new experiment begins from it, for which `overrides` may set anything.

        Raises:
            StoreError: there is no record, or it is of another format.
            ConfigError: it is one that can't be resumed.
        """
        record = ExperimentRecord.open(directory.absolute())
        facts, name = record.facts, record.experiment_id
        if facts["dry"]:
            raise ConfigError(
                f"{name} is a dry run, which is never resumed", hint="run it again with `evsys run`"
            )
        launch = facts.get("launch")
        if launch is None:
            raise ConfigError(
                f"{name} has no record of how it was launched, so it can't be resumed", hint="run it again"
            )
        _require_injections(name, launch, injected)
        root = Path(os.path.normpath(record.directory / launch["project_root"]))
        if not root.is_dir():
            root = find_project_root(record.directory / "config.yaml")
        more = [each for each in overrides if _is_adjustable(each)]
        secret = [each for each in overrides if not _is_adjustable(each)]
        if forks:
            more = [each for each in overrides if overrides_.option(each) not in launch["hidden"]]
            secret = [each for each in overrides if overrides_.option(each) in launch["hidden"]]
        launched = _overrides(facts["overrides"], launch["hidden"], secret, name)
        adjusted = (*facts.get("adjusted", ()), *more)
        return cls(
            directory=record.directory,
            project_root=root,
            overrides=(*launched, *adjusted),
            adjusted=adjusted,
            parent=facts["parent_experiment_id"],
            options={option: launch["options"][option] for option in KEPT_OPTIONS},
            complete=facts["status"] in (COMPLETE, "stopped")
            and facts["finished"] is not None
            and not facts.get("to_resume"),
            stored=facts.get(STORED) or {},
        )


def _require_injections(name: str, launch: Mapping[str, Any], injected: Collection[str]) -> None:
    """Refuse to continue without the functions and benchmarks that an experiment was launched with."""
    injects = launch.get("injects", ["train_fn"] if launch["injected"] else [])
    lacking = [option for option in injects if option not in injected]
    if lacking:
        given = ", ".join(f"{option}=..." for option in injects)
        raise ConfigError(
            f"{name} was launched with {' and '.join(lacking)}, which can't be read from the record",
            hint=f"resume it from Python: Experiment.resume(directory, {given})",
        )


def newest_unfinished(
    experiments: Path,
    *,
    config_hash: str | None = None,
    overrides: Sequence[str] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """The folder of the newest experiment that isn't complete and that no process is at.

    Args:
        experiments: the folder of all experiments.
        config_hash: only those that began with this file.
        overrides: only those with these `--set` options.
        tell: gets a line for each newer one that can't be read, and so is passed over.

    Raises:
        ConfigError: there isn't one; names those that can't be read.
        StoreError: processes are working on all of them; names one.
    """
    held: Path | None = None
    unread: list[str] = []
    for directory, facts in _newest_first(experiments):
        if isinstance(facts, str):
            unread.append(directory.name)
            if tell is not None:
                tell(f"{directory.name} is passed over: {facts}")
            continue
        if _is_complete(facts) or not _began_with(facts, config_hash, overrides):
            continue
        if facts["status"] == RUNNING and ExperimentLock(directory).holder() is not None:
            held = held or directory
            continue
        return directory
    if held is not None:
        with ExperimentLock(held):  # refuses, and names the holder, unless that has just ended
            return held
    of = "" if config_hash is None else " of this file as it is now"
    hint = "`evsys history` lists all"
    if unread:
        hint = f"experiment.json can't be read in {', '.join(unread)}: put it back from a copy; {hint}"
    raise ConfigError(f"there is no unfinished experiment{of} in {experiments}", hint=hint)


def _is_complete(facts: Mapping[str, Any]) -> bool:
    """True if nothing is left to resume; a dry run isn't resumed."""
    if facts["dry"] or facts.get("launch") is None:
        return True
    left, status = facts.get("to_resume"), facts["status"]
    if status in _JUDGED:
        return not (status == COMPLETE and left)
    return status in CONCLUDED and left == []  # None: an older version doesn't say


def _began_with(facts: Mapping[str, Any], config_hash: str | None, overrides: Sequence[str] | None) -> bool:
    if config_hash not in (None, facts["config_hash"]):
        return False
    return overrides is None or facts["overrides"] == [redact_override(each) for each in overrides]


def _newest_first(experiments: Path) -> Iterator[tuple[Path, Mapping[str, Any] | str]]:
    """Records, or why one can't be read. Names begin with the time; two of one second are distinguished by a number behind."""
    found = {path.parent for path in experiments.glob("*/experiment.json")}
    found |= {path.parent.parent.parent for path in experiments.glob("*/runs/*/run.json")}
    for folder in sorted(found, key=lambda path: (path.name[:15], len(path.name), path.name), reverse=True):
        try:
            facts = ExperimentRecord.open(folder).facts
            known = {key: facts[key] for key in ("dry", "status", "config_hash")} | facts
        except StoreError as error:
            yield folder, error.message
        except KeyError as error:
            yield folder, f"its experiment.json lacks {error}"
        else:
            yield folder, known


def _is_adjustable(override: str) -> bool:
    return str(overrides_.split(override)[0][0]) in ADJUSTABLE


def _overrides(
    recorded: Sequence[str], hidden: Sequence[str], given: Sequence[str], name: str
) -> tuple[str, ...]:
    """The options that the experiment was launched with, in their order, those with secrets as they are given now."""
    now = {overrides_.option(each): each for each in given}
    unknown = sorted(now.keys() - set(hidden))
    if unknown:
        raise ConfigError(
            f"{name} continues with its recorded settings, so it accepts no {unknown[0]}",
            hint=f"only these can be changed: {', '.join(ADJUSTABLE)}; for anything else start a new experiment",
        )
    absent = [option for option in hidden if option not in now]
    if absent:
        raise ConfigError(
            f"{name} was launched with {absent[0]}=..., a secret that isn't on record", hint="give it again"
        )
    return tuple(now.get(overrides_.option(each), each) for each in recorded)
