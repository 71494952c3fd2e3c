"""`map`: changes to columns, given as data or as a function."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime import RowProblem
from evsys_runtime.data.json_rows import row_type_name
from evsys_std.transforms.columns import Row, as_text, no_column
from evsys_std.transforms.functions import load_function

__all__ = ["Map"]

CastType = Literal["int", "float", "str", "bool", "json"]
_TRUE, _FALSE = {"true", "yes", "1"}, {"false", "no", "0"}


class Map:
    """Changes columns of each row, in this order: `drop`, `rename`, `set`, `strip`, `lower`, `cast`.

    Or calls `function`, given as `package.module.name`, with the row: it returns the new row, or None to leave it out.
    """

    name: ClassVar[str] = "map"
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"set": {"source": "here"}, "strip": ["text"]}}
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `map`."""

        drop: tuple[str, ...] = option((), "columns to take away")
        rename: dict[str, str] = option(attrs.Factory(dict), "old name: new name")
        set: dict[str, Any] = option(attrs.Factory(dict), "column: value it gets in every row")
        strip: tuple[str, ...] = option((), "columns whose text loses white space at both ends")
        lower: tuple[str, ...] = option((), "columns whose text becomes lower case")
        cast: dict[str, CastType] = option(
            attrs.Factory(dict), "column: int, float, str, bool, or json (text to parse)"
        )
        function: str | None = option(
            None, "package.module.name of a function of one row, instead of the rest"
        )
        on_error: Literal["error", "drop"] = option(
            "error", "a row that can't be changed so: fail, or leave it out and count it"
        )

    def __init__(self, **fields: Any) -> None:
        self.config = config = self.Config(**fields)
        self.dropped: Counter[str] = Counter()
        changes = (config.drop, config.rename, config.set, config.strip, config.lower, config.cast)
        if config.function is not None and any(changes):
            raise ValueError("`function` can't be combined with others; use a second `map` for the rest")
        if config.function is None and not any(changes):
            raise ValueError(
                "nothing to do; give `set`, `rename`, `cast`, `strip`, `lower`, `drop` or `function`"
            )
        self._steps = tuple(_steps(config))
        self._change = load_function(config.function) if config.function is not None else self._columns

    @property
    def uses(self) -> dict[str, Any]:
        """The user's function, for the lineage."""
        return {} if self.config.function is None else {self.config.function: self._change}

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        self.dropped = Counter()
        change, function = self._change, self.config.function
        for row in rows:
            try:
                changed = change(row)
            except RowProblem as exc:
                if self.config.on_error == "error":
                    raise
                self.dropped[exc.kind] += 1
                continue
            if changed is None:
                self.dropped[f"{function} returned None"] += 1
            elif isinstance(changed, Mapping):
                yield changed
            else:
                raise RowProblem(f"{function} returned {row_type_name(changed)}, not a row")

    def _columns(self, row: Row) -> dict[str, Any]:
        new = dict(row)
        for step in self._steps:
            new = step(new)
        return new


type _Step = Callable[[dict[str, Any]], dict[str, Any]]
"""Changes a new row in place, or makes another one."""


def _steps(config: Map.Config) -> Iterator[_Step]:
    if config.drop:
        yield _dropping(config.drop)
    if config.rename:
        yield _renaming(config.rename)
    if config.set:
        yield _setting(config.set)
    for column in config.strip:
        yield _text_step(column, str.strip)
    for column in config.lower:
        yield _text_step(column, str.lower)
    for column, wanted in config.cast.items():
        yield _casting(column, wanted)


def _dropping(columns: tuple[str, ...]) -> _Step:
    def step(new: dict[str, Any]) -> dict[str, Any]:
        for column in columns:
            new.pop(column, None)
        return new

    return step


def _renaming(new_names: dict[str, str]) -> _Step:
    def step(new: dict[str, Any]) -> dict[str, Any]:
        for old in new_names:
            if old not in new:
                raise no_column(old, new)
        return {new_names.get(column, column): value for column, value in new.items()}

    return step


def _setting(values: dict[str, Any]) -> _Step:
    nested = any(isinstance(value, dict | list) for value in values.values())

    def step(new: dict[str, Any]) -> dict[str, Any]:
        # Rows share nothing that a later transform might change.
        new.update(copy.deepcopy(values) if nested else values)
        return new

    return step


def _text_step(column: str, change: Callable[[str], str]) -> _Step:
    def step(new: dict[str, Any]) -> dict[str, Any]:
        new[column] = change(_text(new, column))
        return new

    return step


def _casting(column: str, wanted: CastType) -> _Step:
    def step(new: dict[str, Any]) -> dict[str, Any]:
        if column not in new:
            raise no_column(column, new)
        new[column] = _cast(new[column], column, wanted)
        return new

    return step


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    if type(value) is str:
        return value
    if column not in row:
        raise no_column(column, row)
    raise RowProblem(
        f"column {column!r} is not a string", f"column {column!r} is {row_type_name(value)}, not a string"
    )


def _cast(value: Any, column: str, wanted: CastType) -> Any:
    """`value` as another type; None stays None, and nothing is rounded."""
    if value is None:
        return None
    try:
        return _CASTS[wanted](value)
    except (ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise RowProblem(
            f"column {column!r} can't be cast to {wanted}",
            f"column {column!r} holds {value!r:.60}, which can't be cast to {wanted}",
        ) from exc


def _to_int(value: Any) -> int:
    if isinstance(value, float):
        if value != int(value):
            raise ValueError(value)
        return int(value)
    return int(value.strip()) if isinstance(value, str) else int(value)


def _to_float(value: Any) -> float:
    number = float(value)
    if number - number != 0:  # NaN and the infinities can't be written as JSON
        raise ValueError(value)
    return number


def _to_bool(value: Any) -> bool:
    text = as_text(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError(value)


def _to_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


_CASTS: dict[CastType, Callable[[Any], Any]] = {
    "int": _to_int,
    "float": _to_float,
    "str": as_text,
    "bool": _to_bool,
    "json": _to_json,
}
