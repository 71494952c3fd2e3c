"""Prices of API models: dated files that say where each price is from, and what a call cost by it."""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, Problem
from evsys_runtime.data.user_cache import cache_root

__all__ = ["FILE_NAME", "PACKAGED", "STALE_DAYS", "Price", "PriceList", "load_prices"]

FILE_NAME = "prices.toml"
"""The name of a price file, in a project and in the cache folder."""

PACKAGED = Path(__file__).with_name(FILE_NAME)
"""The prices that evsys brings."""

STALE_DAYS = 180
"""An older price gets a warning."""

_PER = 1_000_000
_AMOUNTS = ("prompt", "completion", "cached", "training")
_OPTIONAL = {"cached", "training"}


@attrs.frozen(kw_only=True)
class Price:
    """US dollars per million tokens of one model.

    `cached` is the price of prompt tokens that the service had seen before; None charges them like the others. `training` is that
    of tokens that the service trains on; None where it isn't known. `as_of` is
    the day on which the price was listed, `source` says where; without both it is unverified. `file` is what says so, None for
    a price given by hand.
    """

    prompt: float
    completion: float
    cached: float | None = None
    training: float | None = None
    as_of: dt.date | None = None
    source: str | None = None
    file: str | None = None

    def doubts(self, model: str, today: dt.date) -> Iterator[str]:
        """Doubts about costs by this price: that it is old, or that its source isn't given."""
        if self.file is None:
            return
        what = f"the price of {model!r} in {self.file}"
        age = None if self.as_of is None else (today - self.as_of).days
        if age is not None and age > STALE_DAYS:
            yield f"{what} is of {self.as_of}, {age} days ago; see whether it still holds, and write the new day as `as_of`"
        lacking = [name for name in ("as_of", "source") if getattr(self, name) is None]
        if lacking:
            yield f"{what} is unverified: it has no {' and no '.join(f'`{name}`' for name in lacking)}"

    def cost(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """US dollars for one call. `cached_tokens` are those of the cached prompt."""
        cached = self.prompt if self.cached is None else self.cached
        fresh_tokens = max(0, prompt_tokens - cached_tokens)
        return (
            fresh_tokens * self.prompt + cached_tokens * cached + completion_tokens * self.completion
        ) / _PER


@attrs.frozen(kw_only=True)
class PriceList:
    """Prices by the exact name of the model."""

    models: Mapping[str, Price] = attrs.field(factory=dict)

    def cost(
        self, model: str, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0
    ) -> float | None:
        """US dollars for one call; None where the model's price isn't known, which is never 0."""
        price = self.models.get(model)
        return None if price is None else price.cost(prompt_tokens, completion_tokens, cached_tokens)

    def doubts(self, model: str, *, today: dt.date | None = None) -> tuple[str, ...]:
        """Doubts about a model's costs; see `Price.doubts`. None without a known price."""
        price = self.models.get(model)
        day = dt.datetime.now(dt.UTC).date() if today is None else today
        return () if price is None else tuple(price.doubts(model, day))


def load_prices(project_root: Path | None = None) -> PriceList:
    """The packaged prices, overruled model by model by the user's file, and that by the project's.

    Args:
        project_root: where a project's `prices.toml` may lie; None looks at no project.

    Raises:
        ConfigError: a file isn't what it should be; all its faults.
    """
    folders = [cache_root(), *([] if project_root is None else [project_root])]
    models = dict(_read(PACKAGED))
    for folder in folders:
        path = folder / FILE_NAME
        if path.is_file():
            models |= _read(path)
    return PriceList(models=models)


def _read(path: Path) -> Mapping[str, Price]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:  # bad TOML and bad UTF-8 are both a ValueError
        raise ConfigError(
            [Problem(path="", message=f"the price file can't be read: {exc}", source=str(path))]
        ) from exc
    problems = [attrs.evolve(problem, source=str(path)) for problem in _problems(tree)]
    if problems:
        raise ConfigError(problems)
    whole = {"as_of": tree["as_of"]} if "as_of" in tree else {}
    return {name: Price(**{**whole, **row}, file=str(path)) for name, row in tree.get("models", {}).items()}


def _problems(tree: Mapping[str, Any]) -> Iterator[Problem]:
    models = tree.get("models", {})
    for name in sorted(set(tree) - {"models", "as_of"}):
        yield Problem(path=f"$.{name}", message="unknown key", hint='a price belongs in [models."NAME"]')
    yield from _date_problems(tree, "$")
    if not isinstance(models, dict):
        yield Problem(path="$.models", message="must be a table of models")
        return
    for name, row in models.items():
        where = f"$.models[{name!r}]"
        if not isinstance(row, dict):
            yield Problem(path=where, message="must be a table with `prompt` and `completion`")
            continue
        yield from _row_problems(row, where)


def _row_problems(row: Mapping[str, Any], where: str) -> Iterator[Problem]:
    for key in sorted(set(row) - {*_AMOUNTS, "as_of", "source"}):
        yield Problem(
            path=f"{where}.{key}", message="unknown key", hint=f"{', '.join(_AMOUNTS)}, as_of or source"
        )
    for key in _AMOUNTS:
        if key not in row:
            if key not in _OPTIONAL:
                yield Problem(path=f"{where}.{key}", message="is missing: US dollars per million tokens")
        elif not _is_amount(row[key]):
            message = f"must be a number of US dollars from 0 up, got {row[key]!r}"
            yield Problem(path=f"{where}.{key}", message=message)
    source = row.get("source", "-")
    if not isinstance(source, str) or not source.strip():
        yield Problem(path=f"{where}.source", message=f"must name the source of the price, got {source!r}")
    yield from _date_problems(row, where)


def _date_problems(row: Mapping[str, Any], where: str) -> Iterator[Problem]:
    if "as_of" in row and type(row["as_of"]) is not dt.date:
        message = f"must be a date such as 2026-01-31, without quotes, got {row['as_of']!r}"
        yield Problem(path=f"{where}.as_of", message=message)


def _is_amount(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    )
