"""How a key of the experiment file is declared: type, default, bounds, help, and which kind of plugin it names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
from attrs import validators

__all__ = ["key"]


def key(
    text: str,
    default: Any = attrs.NOTHING,
    *,
    factory: Callable[[], Any] | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    choices: Sequence[Any] | None = None,
    min_len: int | None = None,
    plugin: str | None = None,
    aliases: Iterable[str] | Mapping[str, str | None] = (),
    deprecated: str | None = None,
    secret: bool = False,
) -> Any:
    """Declare a key.

    Args:
        text: its help, printed by `evsys schema --experiment`.
        default: its value where the file gives none; a key without default is required.
        factory: makes the default, for lists and mappings.
        ge: smallest value; `gt` excludes it.
        gt: see `ge`.
        le: largest value.
        choices: the accepted values.
        min_len: fewest characters.
        plugin: the kind of plugin that its `{kind, params}` names.
        aliases: other names for it; see `evsys.option`.
        deprecated: the version of evsys since which it is deprecated; `text` says what to use instead.
        secret: its value is a secret; see `evsys.option`.
    """
    checks: list[Any] = []
    if ge is not None:
        checks.append(validators.ge(ge))
    if gt is not None:
        checks.append(validators.gt(gt))
    if le is not None:
        checks.append(validators.le(le))
    if choices is not None:
        checks.append(validators.in_(tuple(choices)))
    if min_len is not None:
        checks.append(validators.min_len(min_len))
    validator = validators.and_(*checks) if len(checks) > 1 else checks[0] if checks else None
    if validator is not None and default is None:
        validator = validators.optional(validator)
    names = dict(aliases) if isinstance(aliases, Mapping) else dict.fromkeys(aliases)
    given = {"help": text, "plugin": plugin, "aliases": names, "deprecated": deprecated, "secret": secret}
    metadata = {name: value for name, value in given.items() if value}
    if factory is not None:
        return attrs.field(factory=factory, validator=validator, metadata=metadata, repr=not secret)
    return attrs.field(default=default, validator=validator, metadata=metadata, repr=not secret)
