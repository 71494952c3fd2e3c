"""The ini option `evsys_xfail`: checks that a plugin is known to fail, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Expectation", "ExpectationError", "parse", "stale"]


class ExpectationError(Exception):
    """A line of `evsys_xfail` that can't be used."""


class _Item(Protocol):
    @property
    def nodeid(self) -> str: ...


@dataclass(frozen=True)
class Expectation:
    """`test_id` is `Class::test` or `Class::test[distribution/name]`."""

    test_id: str
    reason: str

    def meets(self, nodeid: str) -> bool:
        """True for the test with this id, and without brackets for it with every plugin."""
        return nodeid.endswith((f"::{self.test_id}",)) or f"::{self.test_id}[" in nodeid

    @property
    def class_name(self) -> str:
        """The class that the test is in."""
        return self.test_id.partition("::")[0]

    @property
    def distribution(self) -> str | None:
        """The distribution in the brackets, if there are any."""
        _, bracket, plugin = self.test_id.partition("[")
        return plugin.partition("/")[0].removesuffix("]") if bracket else None


def parse(lines: Iterable[str]) -> list[Expectation]:
    """Read the lines `Class::test[plugin] = reason`.

    Raises:
        ExpectationError: a line has no reason or no test.
    """
    found = []
    for line in lines:
        test_id, equals, reason = (part.strip() for part in line.partition(" = "))
        if not equals or not reason or "::" not in test_id:
            raise ExpectationError(f"evsys_xfail: {line!r} isn't `Class::test[distribution/name] = reason`")
        found.append(Expectation(test_id, reason))
    return found


def stale(
    expectations: Iterable[Expectation], items: Sequence[_Item], distributions: Sequence[str] | None
) -> list[str]:
    """The ids that match no collected test although their plugin is being checked.

    Args:
        expectations: all lines.
        items: all collected tests.
        distributions: those that this run checks; None when the suite only runs by its subclasses.
    """
    classes = {part for item in items for part in item.nodeid.split("::")[1:-1]}
    found = []
    for expectation in expectations:
        elsewhere = (
            expectation.class_name not in classes
            if distributions is None
            else expectation.distribution not in (None, *distributions)
        )
        if not elsewhere and not any(expectation.meets(item.nodeid) for item in items):
            found.append(expectation.test_id)
    return found
