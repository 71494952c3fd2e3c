"""The findings of an audit: the checks made, the differences found, and the claims that can't be checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from evsys_record.files import read_json, write_json
from evsys_record.hashing import file_digest
from evsys_record.past import Mark

__all__ = [
    "AUDIT",
    "Audit",
    "AuditCheck",
    "AuditPart",
    "AuditState",
    "audit_of",
    "is_edited",
    "save_audit",
    "saved_differences",
]

AUDIT = "audit.json"
"""The newest audit saved, in the folder of the experiment."""

type AuditState = Literal["ok", "differs", "unchecked"]
type AuditPart = Literal["files", "rollouts", "numbers", "verdict"]


@attrs.frozen(kw_only=True)
class AuditCheck:
    """One check: `name` of `about`, such as `p_value` of an arm's comparison.

    `recorded` is the value on record and `recomputed` the one that follows from what it rests on; numbers may
    differ by `tolerance`. `detail` says what is wrong, or why it can't be checked.
    """

    part: AuditPart
    about: str
    name: str
    state: AuditState
    recorded: float | str | None = None
    recomputed: float | str | None = None
    tolerance: float | None = None
    detail: str | None = None


@attrs.frozen(kw_only=True)
class Audit:
    """An audit of an experiment: `passed` if nothing differs. The counts are those of `checks` by state.

    `subject` and `marks` are those of the verdict, as its record has them.
    """

    experiment_id: str
    passed: bool
    verdict: str | None
    ok: int
    differs: int
    unchecked: int
    checks: tuple[AuditCheck, ...] = ()
    subject: str | None = None
    marks: tuple[Mark, ...] = ()


def audit_of(experiment_id: str, verdict: str | None, checks: Iterable[AuditCheck]) -> Audit:
    """The audit that these checks make."""
    found = tuple(checks)
    counts = {state: sum(check.state == state for check in found) for state in ("ok", "differs", "unchecked")}
    return Audit(
        experiment_id=experiment_id,
        passed=counts["differs"] == 0,
        verdict=verdict,
        checks=found,
        ok=counts["ok"],
        differs=counts["differs"],
        unchecked=counts["unchecked"],
    )


def save_audit(directory: Path, audit: Audit) -> None:
    """Keep an audit in the folder of its experiment, with the time of the conclusion that it is about.

    Raises:
        StoreError: it can't be written.
    """
    finished = read_json(directory / "experiment.json").get("finished")
    write_json(directory / AUDIT, {**attrs.asdict(audit), "concluded": finished})


def saved_differences(directory: Path, facts: Mapping[str, Any]) -> int:
    """How many checks of the saved audit differ; 0 without one, and if the experiment was concluded again since.

    Args:
        directory: of the experiment.
        facts: its experiment.json.
    """
    if not (directory / AUDIT).exists():
        return 0
    saved = read_json(directory / AUDIT)
    return int(saved["differs"]) if saved.get("concluded") == facts.get("finished") else 0


def is_edited(directory: Path, facts: Mapping[str, Any]) -> bool:
    """Whether conclusion.json changed since it was written. Older records have no hash of it, so nothing is known of them."""
    written = facts.get("conclusion_hash")
    return written is not None and file_digest(directory / "conclusion.json") != written
