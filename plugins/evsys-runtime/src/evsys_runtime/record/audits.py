"""What an audit of an experiment finds: what was checked, what differs, and what can't be checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

__all__ = ["Audit", "AuditCheck", "AuditPart", "AuditState", "audit_of"]

type AuditState = Literal["ok", "differs", "unchecked"]
type AuditPart = Literal["files", "rollouts", "numbers", "verdict"]


@attrs.frozen(kw_only=True)
class AuditCheck:
    """One thing that was checked: `name` of `about`, such as `p_value` of an arm's comparison.

    `recorded` is the value on record and `recomputed` the one that follows from what it rests on; numbers may differ by `tolerance`. `detail`
    says what is wrong, or why it can't be checked.
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
    """An audit of an experiment: `passed` if nothing differs. The counts are those of `checks` by state."""

    experiment_id: str
    passed: bool
    verdict: str | None
    ok: int
    differs: int
    unchecked: int
    checks: tuple[AuditCheck, ...] = ()


def audit_of(experiment_id: str, verdict: str | None, checks: Iterable[AuditCheck]) -> Audit:
    """The audit that these checks make."""
    found = tuple(checks)
    counts = {state: sum(check.state == state for check in found) for state in ("ok", "differs", "unchecked")}
    return Audit(
        experiment_id=experiment_id,
        passed=counts["differs"] == 0,
        verdict=verdict,
        checks=found,
        **counts,
    )
