"""Problems as they are collected: each once, in the order of the file, with the number of arms it is in."""

from __future__ import annotations

import attrs

from evsys.errors import ConfigError, Problem
from evsys_runtime.config.paths import ancestors

__all__ = ["Report"]


@attrs.define(kw_only=True)
class Report:
    """Collects problems and warnings.

    `settled` are paths whose value was refused as it was read, so that what else is wrong with it is an echo.
    """

    problems: list[Problem] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)
    settled: set[str] = attrs.field(factory=set)

    def add(self, *problems: Problem) -> None:
        """Note problems."""
        for problem in problems:
            if not self.settled or self.settled.isdisjoint(ancestors(problem.path)):
                self.problems.append(problem)

    def warn(self, warning: str) -> None:
        """Note a warning, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    def ordered(self) -> tuple[Problem, ...]:
        """Each problem once, by file, line and column; those without a place come last."""
        return tuple(sorted(dict.fromkeys(self.problems), key=_place))

    def raise_if_any(self) -> None:
        """Raise what was collected.

        Raises:
            ConfigError: with every problem.
        """
        if self.problems:
            raise ConfigError(self.ordered())


def _place(problem: Problem) -> tuple[bool, str, int, int, str, str]:
    return (
        problem.line is None,
        problem.source or "",
        problem.line or 0,
        problem.column or 0,
        problem.path,
        problem.message,
    )
