"""The contract of a command: it is a click command with a help line."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from evsys_conformance.checks.entry import EntryConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import require

__all__ = ["CommandConformance"]


class CommandConformance(EntryConformance):
    """Checks of the kind `command`: click commands, which `evsys NAME` runs."""

    kind: ClassVar[str | None] = "command"

    @check(calls=False)
    def test_is_a_command(self, loaded: Any) -> None:
        """It is a click command or group."""
        missing = [
            name
            for name in ("main", "make_context", "get_short_help_str")
            if not callable(getattr(loaded, name, None))
        ]
        require(
            not missing,
            f"it is not a click command: it has no {', '.join(missing)}",
            seen=loaded,
            wanted="a function under @click.command() or @click.group()",
        )

    @check(calls=False)
    def test_says_what_it_does(self, loaded: Any) -> None:
        """Its help begins with a line that `evsys --help` and completion can show."""
        if not callable(getattr(loaded, "get_short_help_str", None)):
            pytest.skip("after test_is_a_command: it is not a click command")
        require(loaded.get_short_help_str(), "it has no help", wanted="a docstring under @click.command()")
