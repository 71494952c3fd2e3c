"""The contracts of plugins, and the `RunResult` that an algorithm returns."""

from __future__ import annotations

from evsys.protocols import *  # noqa: F403 - all of them, pinned by a test
from evsys.protocols import __all__ as _contracts
from evsys.types import RunResult

__all__ = [*_contracts, "RunResult"]  # noqa: PLE0604 - texts, all of them
