"""Parameters that every logger has."""

from __future__ import annotations

import string

import attrs

from evsys import option

__all__ = ["LoggerConfig"]

_WORDS = ("experiment", "run", "arm", "repeat")


@attrs.frozen(kw_only=True)
class LoggerConfig:
    """Parameters that every logger has."""

    project: str = option("evsys", "project that the runs are put into", min_len=1)
    name: str = option(
        "{experiment}/{run}",
        "a run's name; {experiment}, {run}, {arm} and {repeat} are put in",
        min_len=1,
    )
    tags: tuple[str, ...] = option((), "tags of each run")
    directory: str | None = option(
        None,
        "folder for its files, relative to the project root; by default `loggers` in the run's folder",
        min_len=1,
    )
    flush_seconds: float = option(1.0, "time between two batches", gt=0)
    close_seconds: float = option(60.0, "how long the end of a run waits for pending writes", gt=0)

    def __attrs_post_init__(self) -> None:
        known = ", ".join(f"{{{word}}}" for word in _WORDS)
        for word in _placeholders(self.name):
            if word not in _WORDS:
                raise ValueError(f"name: unknown placeholder {{{word}}}; known: {known}")


def _placeholders(template: str) -> list[str]:
    try:
        return [word for _, word, _, _ in string.Formatter().parse(template) if word is not None]
    except ValueError as exc:
        raise ValueError(
            f"name: {template!r} is not a template: {exc}; a brace itself is written twice"
        ) from exc
