"""What an algorithm asks for whose training collapsed: that the run goes on from an earlier checkpoint."""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = ["Retreat", "RetreatKind"]

RetreatKind = Literal["rollback", "branch"]
"""Both go on from the best checkpoint, as an attempt of its own. `rollback` leaves what collapsed as it is; `branch` scores it
first, on every entry that isn't kept for the test, so that both sides can be compared.
"""


@attrs.frozen(kw_only=True)
class Retreat:
    """Go back to the best checkpoint of at most `before` optimiser steps, or to the beginning where there is none."""

    kind: RetreatKind
    before: int
