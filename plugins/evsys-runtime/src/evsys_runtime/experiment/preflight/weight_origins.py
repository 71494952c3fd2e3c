"""The runs whose checkpoints an arm starts from: what they were trained on is in the weights that are scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import EvsysError
from evsys.optional import declared
from evsys_record.files import read_json
from evsys_record.run_record import RunRecord
from evsys_runtime.config.placeholders import resolve

if TYPE_CHECKING:
    from evsys_runtime.config.plan import ArmConfig
    from evsys_runtime.data.parse import Shape
    from evsys_runtime.experiment.state.session import Session

__all__ = ["OriginRows", "origin_rows"]


@attrs.frozen(kw_only=True)
class OriginRows:
    """The training rows of a run that weights come from: the file, its `fingerprint` and shape, and whose they are."""

    path: Path
    fingerprint: str
    shape: Shape
    source: str


def origin_rows(session: Session, arm: ArmConfig) -> Iterator[OriginRows]:
    """The rows of the runs behind the checkpoint that an arm starts from, the nearest first. Blocking.

    A checkpoint whose rows aren't on record, and so can't be searched, becomes one of the session's `unknown_weights`.

    Args:
        session: whose experiment it is.
        arm: one of its arms.
    """
    root, seen = session.plan.project_root, set[Path]()
    name = arm.run.model.load_checkpoint_path or arm.run.model.init_from_checkpoint
    while name is not None:
        if "://" in name:
            session.unknown_weights[arm.name] = f"{name}, which isn't on record"
            return
        run = (root / name).resolve().parent.parent
        if run in seen:
            return
        seen.add(run)
        try:
            rows, config = _rows_of(session, run)
        except (EvsysError, KeyError, TypeError, IndexError) as error:
            session.unknown_weights[arm.name] = f"{name}: {error}"
            return
        yield rows
        model = config.get("model") or {}
        name = model.get("load_checkpoint_path") or model.get("init_from_checkpoint")


def _rows_of(session: Session, run: Path) -> tuple[OriginRows, Mapping[str, Any]]:
    """The rows of a run on record, and its config."""
    record, experiment = RunRecord(run), run.parent.parent
    facts, path = record.facts, record.training_data()
    if path is None:
        raise KeyError("training_data.jsonl")
    arms = read_json(experiment / "resolved.json")["arms"]
    config = {each["arm"]: each["run"] for each in arms}[facts["arm"]]
    algorithm = config["algorithm"]
    built = session.plan.registry.build("algorithm", algorithm["kind"], resolve(algorithm["params"]))
    rows = OriginRows(
        path=path,
        fingerprint=str(facts["data"]["fingerprint"]),
        shape=declared(built, "shape", "chat"),
        source=f"{experiment.name}/{facts['run_id']}",
    )
    return rows, config
