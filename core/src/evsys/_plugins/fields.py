"""The shorthand for a field of a Config."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import EllipsisType
from typing import Any

import attrs
from attrs import validators

__all__ = ["option"]


def option[T](
    default: T | EllipsisType,
    help: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Iterable[Any] | None = None,
    source: str | None = None,
    aliases: Iterable[str] | Mapping[str, str | None] = (),
    deprecated: str | None = None,
    min_len: int | None = None,
    secret: bool = False,
) -> T:
    """A field of an attrs Config: its default, what it means, and what it allows. None is let through by all bounds.

    Args:
        default: the value when none is given, `attrs.Factory(list)` for a new one each time, `...` for a required field.
        help: one sentence, shown by `evsys schema`.
        ge: smallest value.
        gt: value that it must be above.
        le: largest value.
        lt: value that it must be below.
        choices: the values that it may have.
        source: where the default comes from, such as a paper.
        aliases: other names that a file may use for it. A mapping gives, for each name, the version since which that name is
            deprecated, or None for a name that stays.
        deprecated: the version since which the field itself is deprecated; `help` says what to use instead.
        min_len: fewest characters or items.
        secret: its value is a secret: a file must write `${NAME}`, its repr is hidden, and its schema is write-only.
    """
    wanted: list[tuple[Callable[[Any], Any], Any]] = [
        *((validators.ge, ge), (validators.gt, gt), (validators.le, le), (validators.lt, lt)),
        *((validators.in_, None if choices is None else tuple(choices)), (validators.min_len, min_len)),
    ]
    checks = [make(value) for make, value in wanted if value is not None]
    names = dict(aliases) if isinstance(aliases, Mapping) else dict.fromkeys(aliases)
    metadata = {"help": help, "source": source, "aliases": names, "deprecated": deprecated, "secret": secret}
    return attrs.field(  # type: ignore[no-any-return]  # attrs types the class's field, not its value
        default=attrs.NOTHING if default is ... else default,
        validator=validators.optional(checks[0] if len(checks) == 1 else checks) if checks else None,
        metadata={key: value for key, value in metadata.items() if value},
        repr=not secret,
    )
