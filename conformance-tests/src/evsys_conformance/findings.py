"""How a check reports a fault to a plugin's author: the fault, the value seen, and the contract.

A finding has no traceback of the suite, which is of no use to a plugin's author. If the plugin itself raises, its
traceback stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, NoReturn

import numpy as np
import pytest

__all__ = [
    "Words",
    "as_number",
    "breach",
    "place_of",
    "require",
    "require_close",
    "require_equal",
    "short_text",
]

_NOTHING: Any = object()
_LONGEST = 300
_SHORT = 100


class Words(str):
    """A value seen, described in words: printed as it is, whereas other values are printed by their repr."""

    __slots__ = ()


def short_text(value: Any) -> str:
    """A value as a message shows it: short, and on one line."""
    text = (value if isinstance(value, Words) else repr(value)).replace("\n", " ")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 30]} ... ({len(text)} characters)"


def breach(wrong: str, *, seen: Any = _NOTHING, wanted: str | None = None) -> NoReturn:
    """Fail the check.

    Args:
        wrong: what is wrong, in one line.
        seen: the wrong value, if there is one.
        wanted: what the contract wants in its place, in words.
    """
    lines = [wrong]
    if seen is not _NOTHING:
        lines.append(f"  seen:   {short_text(seen)}")
    if wanted is not None:
        lines.append(f"  wanted: {wanted}")
    raise pytest.fail.Exception("\n".join(lines), pytrace=False) from None


def require(kept: object, wrong: str, *, seen: Any = _NOTHING, wanted: str | None = None) -> None:
    """Fail the check unless `kept` is true; see `breach`."""
    if not kept:
        breach(wrong, seen=seen, wanted=wanted)


def require_equal(seen: Any, wanted: Any, wrong: str) -> None:
    """Fail the check unless the value seen is the wanted one; of long values the first place that differs is shown."""
    if seen == wanted:
        return
    place = ""
    if max(len(repr(seen)), len(repr(wanted))) > _SHORT:
        place, seen, wanted = _first_difference(seen, wanted)
    where = f" (at {place})" if place else ""
    breach(f"{wrong}{where}", seen=seen, wanted=short_text(wanted))


def _first_difference(seen: Any, wanted: Any, place: str = "") -> tuple[str, Any, Any]:
    """The innermost place at which two trees of mappings and lists differ, and what is there."""
    if isinstance(seen, Mapping) and isinstance(wanted, Mapping):
        for key in [*wanted, *(key for key in seen if key not in wanted)]:
            own, other = seen.get(key, _NONE_THERE), wanted.get(key, _NONE_THERE)
            if own != other:
                return _first_difference(own, other, f"{place}[{key!r}]")
    elif isinstance(seen, list | tuple) and isinstance(wanted, list | tuple):
        for i, (own, other) in enumerate(zip_longest(seen, wanted, fillvalue=_NONE_THERE)):
            if own != other:
                return _first_difference(own, other, f"{place}[{i}]")
    return place, seen, wanted


_NONE_THERE = Words("nothing")


def require_close(seen: Any, wanted: Any, wrong: str, *, rtol: float, atol: float) -> None:
    """Fail the check unless numbers, or arrays of one shape, are equal within `atol + rtol * |wanted|`; NaN equals NaN."""
    own, other = np.asarray(seen, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    if own.shape != other.shape:
        breach(wrong, seen=Words(f"shape {own.shape}"), wanted=f"shape {other.shape}")
    close = np.isclose(own, other, rtol=rtol, atol=atol, equal_nan=True)
    if np.all(close):
        return
    worst = np.unravel_index(int(np.argmax(np.where(close, -1.0, np.abs(own - other)))), own.shape)
    where = f" (at [{', '.join(str(int(i)) for i in worst)}])" if own.shape else ""
    breach(
        f"{wrong}{where}",
        seen=Words(f"{own[worst]:.6g}"),
        wanted=f"{other[worst]:.6g}, give or take {atol + rtol * abs(other[worst]):.2g}",
    )


def as_number(value: Any) -> float | None:
    """A value as a number, as evsys takes it: anything with `__float__`, numpy's scalars included, but no text."""
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return None
    return float(value)


def place_of(kind: str | None) -> str:
    """The places that document the contract of a kind: the importable protocol, and the page of the documentation."""
    from evsys import hookspecs, protocols

    name = (kind or "").title().replace("_", "")
    if kind in {"callback", "plugin"}:
        where = hookspecs.__name__
    elif hasattr(protocols, name):
        where = f"{protocols.__name__}.{name}"
    else:
        where = protocols.__name__
    page = f"kinds/{kind}.md" if kind is not None else "conformance.md"
    return f"{where} and docs/reference/{page}"
