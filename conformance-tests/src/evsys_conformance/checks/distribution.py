"""The contract of a distribution's plugins as a whole."""

from __future__ import annotations

from typing import ClassVar

import pytest

from evsys_conformance.budget import HEAVY, Import, imports_of
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require
from evsys_conformance.pytest_plugin import SELECTION

__all__ = ["DistributionConformance"]


class DistributionConformance:
    """Checks of a whole distribution. Override `distribution` with its name."""

    pytestmark: ClassVar[pytest.MarkDecorator] = pytest.mark.evsys_conformance
    kind: ClassVar[str | None] = None

    @pytest.fixture
    def distribution(self) -> str:
        """The name of an installed distribution."""
        breach("override the fixture `distribution`, which names what is checked")

    @pytest.fixture
    def imports(self, request: pytest.FixtureRequest, distribution: str) -> list[Import]:
        """The effects of importing each of its plugins in a process of its own."""
        selection = request.config.stash.get(SELECTION, None)
        chosen = selection is not None and distribution in selection.distributions
        try:
            found = selection.imports(distribution) if selection and chosen else imports_of(distribution)
        except RuntimeError as exc:
            breach(str(exc), wanted="an import that ends, and ends nothing else")
        return list(found.values())

    @check(before_loading=True)
    def test_loading_it_imports_nothing_heavy(self, imports: list[Import]) -> None:
        """Loading its plugins and printing their schemas is cheap, so that `evsys validate` is."""
        for one in imports:
            require(
                not one.heavy,
                f"loading {one.label} imports what takes seconds",
                seen=Words(", ".join(one.heavy)),
                wanted=f"none of {', '.join(HEAVY)}: import them inside the functions that need them",
            )
