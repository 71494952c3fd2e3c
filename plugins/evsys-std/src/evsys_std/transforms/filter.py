"""`filter`: keeps rows that meet conditions, and counts why the others didn't."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime import RowProblem
from evsys_runtime.data.bounded_regex import compile_pattern, search
from evsys_runtime.data.json_rows import row_type_name
from evsys_std.transforms.columns import MISSING, Row, getter
from evsys_std.transforms.functions import load_function

__all__ = ["Condition", "Filter"]

Op = Literal[
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not_in",
    "contains",
    "not_contains",
    "matches",
    "not_matches",
    "exists",
    "missing",
    "min_length",
    "max_length",
]
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@attrs.frozen(kw_only=True)
class Condition:
    """One condition on one column."""

    column: str = option(..., "the column; a dot reaches into a nested one", min_len=1)
    op: Op = option("exists", "how its value is compared")
    value: Any = option(None, "what it is compared with")


class Filter:
    """Keeps the rows that meet all conditions (or any, with `match: any`).

    A column that a row lacks meets no condition but `missing`, `!=`, `not_in`, `not_contains` and `not_matches`.
    Lengths count characters of a text and items of a list.
    """

    name: ClassVar[str] = "filter"
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {"conditions": [{"column": "number", "op": "<", "value": 4}]}
    }
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `filter`."""

        conditions: tuple[Condition, ...] = option((), "list of {column, op, value}", aliases=("where",))
        match: Literal["all", "any"] = option("all", "whether all conditions must hold, or one of them")
        min_length: dict[str, int] = option(attrs.Factory(dict), "column: least length")
        max_length: dict[str, int] = option(attrs.Factory(dict), "column: greatest length")
        function: str | None = option(None, "package.module.name of a function of one row; true keeps it")
        timeout_seconds: float = option(1.0, "longest that a pattern may take for one row", gt=0)

    def __init__(self, **fields: Any) -> None:
        self.config = config = self.Config(**fields)
        self.dropped: Counter[str] = Counter()
        self._function = None if config.function is None else load_function(config.function)
        conditions = [
            *config.conditions,
            *(
                Condition(column=key, op="min_length", value=least)
                for key, least in config.min_length.items()
            ),
            *(Condition(column=key, op="max_length", value=most) for key, most in config.max_length.items()),
        ]
        checks = [_compile(condition, config.timeout_seconds) for condition in conditions]
        if self._function is not None:
            checks.append(_call_predicate(self._function, config.function))
        if not checks:
            raise ValueError("no condition; give `conditions`, `min_length`, `max_length` or `function`")
        self._checks = (_any_of(checks),) if config.match == "any" else tuple(checks)

    @property
    def uses(self) -> dict[str, Any]:
        """The user's function, for the lineage."""
        return {} if self.config.function is None else {self.config.function: self._function}

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        self.dropped = Counter()
        checks = self._checks
        for row in rows:
            for check in checks:
                reason = check(row)
                if reason is not None:
                    self.dropped[reason] += 1
                    break
            else:
                yield row


def _any_of(checks: list[Callable[[Row], str | None]]) -> Callable[[Row], str | None]:
    def check(row: Row) -> str | None:
        reasons = []
        for one in checks:
            reason = one(row)
            if reason is None:
                return None
            reasons.append(reason)
        return " and ".join(reasons)

    return check


def _call_predicate(function: Callable[[Row], Any], path: str | None) -> Callable[[Row], str | None]:
    return lambda row: None if function(row) else f"{path} said no"


def _compile(condition: Condition, timeout_seconds: float) -> Callable[[Row], str | None]:
    """A check that gives None for a row to keep and the reason otherwise."""
    column, op, value = condition.column, condition.op, condition.value
    get, test = getter(column), _test(condition, timeout_seconds)
    absent = (
        None if op in {"missing", "!=", "not_in", "not_contains", "not_matches"} else f"no column {column!r}"
    )
    shown = "" if op in {"exists", "missing"} else f" {value!r:.40}"
    reason = f"not: {column} {op}{shown}"

    def check(row: Row) -> str | None:
        found = get(row)
        if found is MISSING:
            return absent
        return None if test(found) else reason

    return check


def _test(condition: Condition, timeout_seconds: float) -> Callable[[Any], bool]:
    op, value = condition.op, condition.value
    if op == "exists":
        return lambda found: found is not None
    if op == "missing":
        return lambda found: found is None
    if op == "==":
        return lambda found: bool(found == value)
    if op == "!=":
        return lambda found: bool(found != value)
    if op in _ORDER:
        return _ordered(condition, _ORDER[op])
    if op in {"in", "not_in"}:
        if not isinstance(value, list | tuple):
            raise ValueError(f"`{op}` on {condition.column!r} needs a list as `value`")
        wanted = op == "in"
        return lambda found: (found in value) is wanted
    if op in {"contains", "not_contains"}:
        wanted = op == "contains"
        return lambda found: _contains(found, value, condition) is wanted
    if op in {"matches", "not_matches"}:
        return _matching(condition, timeout_seconds)
    return _length(condition)


def _ordered(condition: Condition, compare: Callable[[Any, Any], bool]) -> Callable[[Any], bool]:
    value = condition.value
    number = isinstance(value, int | float)
    comparable = (int, float) if number else (str,)

    def test(found: Any) -> bool:
        if isinstance(found, comparable):
            return compare(found, value)
        raise RowProblem(
            f"column {condition.column!r} has another type than {value!r}",
            f"column {condition.column!r} is {row_type_name(found)}, which {condition.op!r} can't compare with {value!r}; "
            "`map` with `cast` changes its type",
        )

    if not number and not isinstance(value, str):
        raise ValueError(f"`{condition.op}` on {condition.column!r} needs a number or a string as `value`")
    return test


def _contains(found: Any, value: Any, condition: Condition) -> bool:
    if isinstance(found, str):
        return str(value) in found
    if isinstance(found, list | tuple | dict):
        return value in found
    raise _wrong_type(condition, found, "a string or a list")


def _matching(condition: Condition, timeout_seconds: float) -> Callable[[Any], bool]:
    column, op, pattern = condition.column, condition.op, condition.value
    if not isinstance(pattern, str):
        raise ValueError(f"`{op}` on {column!r}: {pattern!r} is not a pattern")  # noqa: TRY004 - a value in a file
    try:
        compile_pattern(pattern)
    except ValueError as exc:
        raise ValueError(f"`{op}` on {column!r}: {exc}") from exc
    wanted = op == "matches"

    def test(found: Any) -> bool:
        if not isinstance(found, str):
            raise _wrong_type(condition, found, "a string")
        try:
            return search(pattern, 0, found, full=False, timeout_seconds=timeout_seconds) is wanted
        except TimeoutError as exc:
            raise RowProblem(
                "a pattern takes too long",
                f"{exc} on the {len(found):,} characters of column {column!r}; "
                "write it without repetition inside repetition, or raise `timeout_seconds`",
            ) from exc

    return test


def _length(condition: Condition) -> Callable[[Any], bool]:
    bound = condition.value
    if not isinstance(bound, int) or isinstance(bound, bool) or bound < 0:
        raise ValueError(f"`{condition.op}` of {condition.column!r} needs a whole number as `value`")
    least = condition.op == "min_length"

    def test(found: Any) -> bool:
        if not isinstance(found, str | list | tuple):
            if found is None:
                return not least or bound == 0
            raise _wrong_type(condition, found, "a string or a list")
        return len(found) >= bound if least else len(found) <= bound

    return test


def _wrong_type(condition: Condition, found: Any, wanted: str) -> RowProblem:
    return RowProblem(
        f"column {condition.column!r} is not {wanted}",
        f"column {condition.column!r} is {row_type_name(found)}, and {condition.op!r} needs {wanted}",
    )
