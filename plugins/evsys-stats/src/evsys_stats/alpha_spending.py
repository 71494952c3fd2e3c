"""How the level of significance is spent over the looks at one question.

Look k gets the share w_k of it, and the shares sum to 1. So however the looks depend on each other, and whenever one stops, the probability that
any of them finds what isn't there is at most the level (Bonferroni; the shares are fixed beforehand, as in Foster & Stine 2008, "Alpha-investing").
"""

from __future__ import annotations

import math

__all__ = ["FIRST_SHARE", "level_of_look"]

FIRST_SHARE = 0.8
"""The share of the first look: nearly all, since most questions are asked once. That costs it 7 % more tasks at 80
% power.
"""

_LATER_SUM = math.pi**2 / 6 - 1
"""The sum of 1 / k^2 from k = 2 on."""


def level_of_look(number: int, alpha: float) -> float:
    """The level that a look may spend.

    Args:
        number: which look at the question it is, from 1 on.
        alpha: the level of all looks together.
    """
    share = FIRST_SHARE if number == 1 else (1.0 - FIRST_SHARE) / number**2 / _LATER_SUM
    return share * alpha
