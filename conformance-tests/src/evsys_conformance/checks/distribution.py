"""What the plugins of a distribution keep together."""

from __future__ import annotations

from typing import ClassVar

import pytest

from evsys_conformance.budget import HEAVY, heavy_imports
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require

__all__ = ["DistributionConformance"]


class DistributionConformance:
    """Checks of a whole distribution. Override `distribution` with its name."""

    is_evsys_conformance: ClassVar[bool] = True
    kind: ClassVar[str | None] = None

    @pytest.fixture
    def distribution(self) -> str:
        """The name of an installed distribution."""
        breach("override the fixture `distribution`, which names what is checked")

    @check(before_loading=True)
    def test_loading_it_imports_nothing_heavy(self, distribution: str) -> None:
        """Loading its plugins and printing their schemas is cheap, so that `evsys validate` is."""
        for entry, brought in heavy_imports(distribution).items():
            require(
                not brought,
                f"loading {entry} imports what takes seconds",
                seen=Words(", ".join(brought)),
                wanted=f"none of {', '.join(HEAVY)}: import them inside the functions that need them",
            )
