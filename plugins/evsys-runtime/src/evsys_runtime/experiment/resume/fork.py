"""A new experiment that begins at the state of another one: its runs branch off from the checkpoints of that one's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from evsys_record import make_directory
from evsys_record.checkpoints import MANIFEST, CheckpointEntry
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import storing
from evsys_record.run_record import RunRecord
from evsys_runtime.config.plan import Plan
from evsys_runtime.experiment.lineage.restart_point import BRANCH, PASSED_OVER, RETREATED, retreats_of
from evsys_runtime.experiment.state.facts import run_facts
from evsys_runtime.experiment.state.session import run_id_of

__all__ = ["branch_off"]

_LEFT_BEHIND = ("data", "stop", "scorings", "tokens", "seconds", "warnings")
"""Entries of a checkpoint that describe the original run and don't hold for the branch."""


def branch_off(record: ExperimentRecord, plan: Plan) -> None:
    """Give each run of a new experiment the last complete checkpoint that the run of its name has in the one that
    it forks.

    It becomes a checkpoint of the new run, whose first attempt does nothing else. Runs that have none begin at
    their beginning. Blocking; a resume of an experiment killed meanwhile calls it again. Nothing is done where
    it was done, or where the experiment is not a fork.

    Args:
        record: of the new experiment, with its lock held.
        plan: its plan.

    Raises:
        StoreError: a checkpoint can't be read, or the new one can't be written.
    """
    facts = record.facts
    forked = facts["launch"]["forks"]
    if forked is None or facts.get("branched"):
        return
    theirs = ExperimentRecord.open(Path(os.path.normpath(record.directory / forked)))
    for arm in plan.arms:
        run = theirs.find_run(run_id_of(arm))
        entry = None if run is None else run.checkpoints.latest(run.attempts)
        if run is None or entry is None:
            continue
        ours = record.run(
            run_id_of(arm),
            hypothesis=plan.experiment.metadata.hypothesis,
            facts=run_facts(arm, dry=False),
        )
        if BRANCH in ours.facts:
            continue
        entry.verify()
        _copy(entry, ours)
        place = {"experiment_id": theirs.experiment_id, "run_id": run.run_id, "attempt": entry.attempt}
        damaged = [error.message for error in run.checkpoints.damaged()]
        ours.note(
            **{
                BRANCH: {**place, "step": entry.step, "files": entry.hashes},
                PASSED_OVER: damaged,
                RETREATED: retreats_of(run),
            }
        )
    record.note(branched=True)


def _copy(entry: CheckpointEntry, ours: RunRecord) -> None:
    attempt = ours.start_attempt(BRANCH, from_step=entry.step)
    folder = ours.checkpoints.begin(entry.step)
    try:
        for name in entry.files:
            make_directory((folder / name).parent)
            with storing(folder / name, "copy to"):
                _link_or_copy(entry.directory / name, folder / name)
        loop = {k: v for k, v in entry.manifest.get("loop", {}).items() if k not in _LEFT_BEHIND}
        ours.checkpoints.commit(
            folder, step=entry.step, attempt=attempt.n, manifest={**entry.manifest, "loop": loop}
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # gone already when it was committed


def _link_or_copy(source: Path, target: Path) -> None:
    """Files of checkpoints never change, so both may be the same one."""
    if source.name == MANIFEST:
        return
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
