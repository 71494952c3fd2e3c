"""An audit as a table: one line for each kind of check, and one for each failed check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from evsys_record.marks import labels
from evsys_runtime.commands import column_lines

if TYPE_CHECKING:
    from evsys_record.audits import Audit, AuditCheck, AuditState

__all__ = ["audit_lines"]

_WORDS: dict[AuditState, str] = {"ok": "ok", "differs": "differs", "unchecked": "can't check"}


def audit_lines(found: Audit) -> Iterator[str]:
    """Lines of differences, of checks that can't be made, and of the number of checks passed for each kind."""
    groups: dict[tuple[str, str], list[AuditCheck]] = {}
    for check in found.checks:
        groups.setdefault((check.part, check.about), []).append(check)
    rows = [row for (part, about), checks in groups.items() for row in _rows(part, about, checks)]
    yield from column_lines(("part", "of", "result", "checks"), rows)
    yield ""
    verdict = ", ".join([found.verdict or "no verdict", *_remarks(found)])
    if found.passed:
        unchecked = f", {found.unchecked} can't be checked" if found.unchecked else ""
        yield f"{found.experiment_id} ({verdict}): passed, {found.ok} checks are ok{unchecked}"
    else:
        total = found.ok + found.differs
        yield f"{found.experiment_id} ({verdict}): {found.differs} of {total} checks differ"


def _remarks(found: Audit) -> Iterator[str]:
    """The subject of the verdict, and the reasons to be careful with it."""
    if found.subject is not None and found.verdict is not None:
        yield f"this {found.subject}"
    yield from labels(found.marks)


def _rows(part: str, about: str, checks: list[AuditCheck]) -> Iterator[list[str]]:
    counts = Counter(check.state for check in checks)
    if counts["ok"]:
        yield [part, about, "ok", str(counts["ok"])]
    for check in checks:
        if check.state != "ok":
            yield [part, about, _WORDS[check.state], f"{check.name}: {_reason(check)}"]


def _reason(check: AuditCheck) -> str:
    if check.detail is not None:
        return check.detail
    within = "" if not check.tolerance else f" (within {check.tolerance:.2g})"
    return f"{_value(check.recorded)} on record, {_value(check.recomputed)} recomputed{within}"


def _value(value: float | str | None) -> str:
    if value is None:
        return "nothing"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
