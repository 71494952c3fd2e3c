"""Collects checks while an audit goes through a record."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from evsys.errors import EvsysError
from evsys_record.audits import AuditCheck, AuditPart, AuditState

__all__ = ["ODD_SHAPE", "ROUNDING", "Section", "describe"]

ODD_SHAPE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of code that expects another type or shape of a value."""

ROUNDING = 1e-9
"""By so much two sums of the same numbers may differ, relative to numbers above 1."""


@attrs.frozen(kw_only=True)
class Section:
    """Checks of one thing, such as a file or the comparison of an arm, appended to `checks`."""

    part: AuditPart
    about: str
    checks: list[AuditCheck] = attrs.field(factory=list)

    def section(self, part: AuditPart, about: str) -> Section:
        """Another section of the same list. Names come from the record, where they may be anything."""
        return attrs.evolve(self, part=part, about=str(about))

    def holds(self, name: str, held: bool, detail: str) -> bool:
        """Check a condition; `detail` says what is wrong if it doesn't hold."""
        self._add(name, "ok" if held else "differs", detail=None if held else detail)
        return held

    def unchecked(self, name: str, why: str) -> None:
        """Report something that can't be checked."""
        self._add(name, "unchecked", detail=why)

    def same(self, name: str, recorded: object, recomputed: object) -> None:
        """Compare two values that have to be equal."""
        state: AuditState = "ok" if recorded == recomputed else "differs"
        self._add(name, state, recorded=_plain(recorded), recomputed=_plain(recomputed))

    def close(
        self, name: str, recorded: float | None, recomputed: float | None, tolerance: float = 0.0
    ) -> None:
        """Compare two numbers, apart from rounding."""
        if recorded is None or recomputed is None:
            self.same(name, recorded, recomputed)
            return
        allowed = tolerance + ROUNDING * max(1.0, abs(recomputed))
        self._add(
            name,
            "ok" if abs(recorded - recomputed) <= allowed else "differs",
            recorded=recorded,
            recomputed=recomputed,
            tolerance=allowed,
        )

    def within(self, name: str, recorded: float | None, lowest: float, highest: float) -> None:
        """Check that a number lies in the range that recomputing it leaves; None represents an infinite one."""
        value = recorded
        if value is None:
            value = lowest if lowest == -math.inf else highest
        middle = (lowest + highest) / 2 if math.isfinite(lowest + highest) else None
        self._add(
            name,
            "ok" if lowest <= value <= highest and (recorded is not None or math.isinf(value)) else "differs",
            recorded=recorded,
            recomputed=middle,
            tolerance=None if middle is None else (highest - lowest) / 2,
        )

    @contextmanager
    def read(self, name: str) -> Iterator[None]:
        """Report a value of another type or shape than evsys writes as a difference: whoever wrote the record is not to be trusted."""
        try:
            yield
        except EvsysError:
            raise
        except ODD_SHAPE as exc:
            self.holds(name, False, f"isn't as evsys writes it ({describe(exc)})")

    def _add(
        self,
        name: str,
        state: AuditState,
        *,
        recorded: float | str | None = None,
        recomputed: float | str | None = None,
        tolerance: float | None = None,
        detail: str | None = None,
    ) -> None:
        self.checks.append(
            AuditCheck(
                part=self.part,
                about=self.about,
                name=name,
                state=state,
                recorded=recorded,
                recomputed=recomputed,
                tolerance=tolerance,
                detail=detail,
            )
        )


def describe(exc: BaseException) -> str:
    """An error in words, which is short whatever value it quotes."""
    return f"{type(exc).__name__}: {exc}"[:200]


def _plain(value: object) -> float | str | None:
    if value is None or isinstance(value, str | float) or (isinstance(value, int) and value is not True):
        return value
    return str(value)
