"""The record of a gate: everything that the decision came from, so that a deployer can repeat and verify it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from evsys import structure
from evsys.errors import DeployError, EvsysError, StoreError
from evsys_deployers.gate.decision import Decision, EntryScores, decide
from evsys_deployers.gate.scoring import ModelIdentity, Scores, checkpoint_digest
from evsys_deployers.gate.suite import Suite
from evsys_record import make_directory, slug
from evsys_record.encoding import as_tree
from evsys_record.files import read_json, write_json
from evsys_stats.alpha_spending import level_of_look

__all__ = ["GateRecord", "look_at", "read_gate", "require_promotion", "write_gate"]

FOLDER = ".evsys/gates"


@attrs.frozen(kw_only=True)
class GateRecord:
    """A decision with all that it came from.

    Attributes:
        decision: the verdict and its tests.
        suite: the values of the suite file, and their digest.
        candidate, incumbent: who they are.
        entries: the scores.
        look: which look at the target's tasks with this incumbent it is, and its level.
        doubts: reasons not to promote, whatever the scores.
        records: the folders of the evaluations.
        warnings: what the evaluations warned of.
        created: when.
    """

    decision: Decision
    suite: Mapping[str, Any]
    candidate: ModelIdentity
    incumbent: ModelIdentity
    entries: tuple[EntryScores, ...]
    look: Mapping[str, Any]
    doubts: tuple[str, ...]
    records: tuple[str, ...]
    warnings: tuple[str, ...]
    created: str


def look_at(suite: Suite, scores: Scores) -> dict[str, Any]:
    """Which look at the target it is, and the level that it may spend.

    Every candidate that was held against the same incumbent on the same tasks counts; the same pair again doesn't, since its
    samples are the same.
    """
    target = scores.entries[0].hashes["tasks"]
    seen = {
        tree["candidate"]["digest"]
        for tree in _gates(suite.project_root)
        if tree["entries"][0]["hashes"]["tasks"] == target
        and tree["incumbent"]["digest"] == scores.incumbent.digest
    }
    number = 1 + len(seen - {scores.candidate.digest})
    return {"number": number, "level": level_of_look(number, suite.config.level)}


def _gates(root: Path) -> Iterator[Mapping[str, Any]]:
    for path in sorted((root / FOLDER).glob("*/gate.json")):
        yield read_json(path, hint="restore it: gates that were asked before count as looks")


def write_gate(suite: Suite, scores: Scores) -> tuple[GateRecord, Path]:
    """Decide, and write the record.

    Raises:
        StoreError: an earlier record is damaged, or this one can't be written.
    """
    values = as_tree(attrs.asdict(suite.config))
    look = look_at(suite, scores)
    doubts = () if suite.config.allow_selected else tuple(_selection_doubts(scores))
    record = GateRecord(
        decision=decide(values, scores.entries, level=look["level"], doubts=doubts),
        suite={**values, "digest": suite.digest},
        candidate=scores.candidate,
        incumbent=scores.incumbent,
        entries=scores.entries,
        look=look,
        doubts=doubts,
        records=scores.records,
        warnings=scores.warnings,
        created=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )
    tree = as_tree(attrs.asdict(record))
    stamp = record.created[:19].replace("-", "").replace(":", "").replace("T", "-")
    folder = _free(suite.project_root / FOLDER / f"{stamp}-{slug(scores.candidate.label)}")
    make_directory(folder)
    write_json(folder / "gate.json", {**tree, "digest": _digest(tree)})
    return record, folder / "gate.json"


def _selection_doubts(scores: Scores) -> Iterator[str]:
    for experiment in scores.selected_by:
        yield (
            f"{scores.candidate.label} was selected by the tasks of {scores.entries[0].benchmark} in {experiment}, so its score "
            "there is partly luck: use tasks that steered nothing, or set allow_selected"
        )


def _free(folder: Path) -> Path:
    place, number = folder, 2
    while place.exists():
        place, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return place


def _digest(tree: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in tree.items() if name not in ("digest", "format")}
    return f"sha256:{hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()}"


def read_gate(path: Path) -> GateRecord:
    """A record whose digest is right and whose decision follows from its scores.

    Raises:
        DeployError: it was changed.
        StoreError: it can't be read.
    """
    tree = read_json(path, hint="run the gate again")
    if tree.get("digest") != _digest(tree):
        raise DeployError(f"{path} was changed after the gate wrote it", hint="run the gate again")
    plain = {name: value for name, value in tree.items() if name not in ("digest", "format")}
    try:
        record = structure(GateRecord, plain)
        again = decide(record.suite, record.entries, level=float(record.look["level"]), doubts=record.doubts)
    except (EvsysError, KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as exc:
        raise DeployError(f"{path} is not a gate record: {exc}", hint="run the gate again") from exc
    if as_tree(attrs.asdict(again)) != as_tree(attrs.asdict(record.decision)):
        raise DeployError(f"the decision in {path} doesn't follow from its scores", hint="run the gate again")
    return record


def require_promotion(path: Path, checkpoint: Path) -> GateRecord:
    """The record that promotes exactly this checkpoint.

    Raises:
        DeployError: it was changed, promotes nothing, or is about other weights.
    """
    record = read_gate(path)
    if record.decision.verdict != "PROMOTE":
        raise DeployError(
            f"the gate says {record.decision.verdict}: {record.decision.why}",
            hint="deploy only what was promoted",
        )
    try:
        digest = checkpoint_digest(checkpoint)
    except StoreError as exc:
        raise DeployError(f"{checkpoint} can't be deployed: {exc.message}") from exc
    if digest != record.candidate.digest:
        raise DeployError(
            f"{path} promotes {record.candidate.label}, and {checkpoint} has other weights",
            hint="gate this one",
        )
    return record
