"""Arms in stages: where each stage begins, when one isn't begun any more, and what the stages come to as one arm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from evsys.errors import RunError, StoreError
from evsys.types import ArmResult, Checkpoint, ModelSpec, Usage
from evsys_record.checkpoints import CheckpointEntry
from evsys_record.run_record import RunRecord
from evsys_record.scorings import THROUGH
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.experiment.state.session import Session
from evsys_runtime.training.checkpoints import find_checkpoint

__all__ = ["Start", "merge_stages", "resulting_weights", "start_of"]


@attrs.frozen(kw_only=True)
class Start:
    """The starting point of a run: its model, and the checkpoint that its weights are loaded from, None for those
    of the base model.

    `follows` is, of a later stage, the run whose selected or last weights these are, with the hashes of their
    files.
    """

    model: ModelSpec
    checkpoint: Checkpoint | None
    follows: Mapping[str, object] | None = None

    @property
    def weights(self) -> Mapping[str, object] | None:
        """The identity of these weights; None for those of the base model."""
        if self.follows is not None:
            return {"files": self.follows["files"]}
        return None if self.checkpoint is None else dict(self.checkpoint.state)


def start_of(session: Session, arm: ArmConfig, model: ModelSpec) -> Start:
    """The starting point of a run: for a later stage the final weights of the stage before it, with a new
    optimiser.

    Args:
        session: of the experiment.
        arm: the run.
        model: the one of its file.

    Raises:
        RunError: the stage before it kept no weights.
        StoreError: they can't be read.
        ConfigError: they don't fit the model.
    """
    root = session.plan.project_root
    if arm.stage is None or arm.stage.first or arm.after is None:
        return Start(model=model, checkpoint=find_checkpoint(model, root))
    record = session.record.find_run(arm.after)
    entry = None if record is None else resulting_weights(record, session.results[arm.after])
    if entry is None:
        raise RunError(
            f"stage {arm.stage.label} begins with the weights that {arm.after} ended with, and that run kept none",
            hint="an algorithm saves them with ctx.checkpoints.save",
        )
    entry.verify()
    model = attrs.evolve(model, init_from_checkpoint=_folder_name(entry.directory, root))
    follows = {"run_id": arm.after, "step": entry.step, "files": entry.hashes}
    return Start(model=model, checkpoint=find_checkpoint(model, root), follows=follows)


def merge_stages(plan: Plan, results: Sequence[ArmResult]) -> list[ArmResult]:
    """The results with the stages of an arm at a repeat taken together, as the verdict looks at arms.

    An arm is what its last stage ended with, compared with what its first one started from; what it used is the sum. An arm whose
    last stage wasn't completed has no scores, and the reason is that of the stage that broke off.
    """
    found = {result.run_id: result for result in results}
    whole: list[ArmResult] = []
    stages: list[ArmResult] = []
    for arm in plan.arms:
        result = found.get(arm.run_id)
        if arm.stage is None:
            whole += [] if result is None else [result]
            continue
        stages = [] if arm.stage.first else stages
        stages += [] if result is None else [result]
        if arm.stage.last and stages:
            whole.append(_merge(stages, complete=result is not None and result.status in THROUGH))
    return whole


def _merge(stages: Sequence[ArmResult], *, complete: bool) -> ArmResult:
    own = [e for e in stages[0].evaluations if e.step == 0 and e.model is None]
    beside = [e for stage in stages for e in stage.evaluations if e.model is not None]
    broken = next((stage for stage in stages if stage.status != "completed"), None)
    shown = stages[-1] if complete or broken is None else broken
    trained = [e for e in stages[-1].evaluations if e.step > 0] if complete else []
    return attrs.evolve(
        shown,
        status=shown.status if complete else "cancelled" if broken is None else broken.status,
        evaluations=(*own, *trained, *beside),
        seconds=sum(stage.seconds for stage in stages),
        usage=sum((stage.usage for stage in stages), Usage()),
        warnings=tuple(dict.fromkeys(_warnings(stages))),
        stage=None,
    )


def _warnings(stages: Iterable[ArmResult]) -> Iterable[str]:
    return (warning for stage in stages for warning in stage.warnings)


def resulting_weights(record: RunRecord, result: ArmResult) -> CheckpointEntry | None:
    """The checkpoint that counts of a run: the selected one, else the last."""
    run = result.run
    selected = None if run is None else run.selected_checkpoint
    last = None if run is None else run.final_checkpoint
    name = last if selected is None else selected.checkpoint
    if name is None:
        return None
    folder = (record.directory / name).resolve()
    saved = record.checkpoints.complete(record.attempts)
    entry = next((entry for entry in saved if entry.directory.resolve() == folder), None)
    if entry is None:
        raise StoreError(f"{folder}, which {record.run_id} ended with, is not a complete checkpoint any more")
    return entry


def _folder_name(folder: Path, root: Path) -> str:
    """A folder as the experiment file would name it: relative to the project where it is in there."""
    return str(folder.relative_to(root)) if folder.is_relative_to(root) else str(folder)
