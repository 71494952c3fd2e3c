"""How the level of significance is spent over the looks at one question.

Look k gets the share w_k of it, and the shares sum to 1. So however the looks depend on each other, and whenever one stops, the probability that
any of them finds what isn't there is at most the level (Bonferroni; the shares are fixed beforehand, as in Foster & Stine 2008, "Alpha-investing").
"""

from __future__ import annotations

import math
from statistics import NormalDist

__all__ = ["FIRST_SHARE", "level_of_look", "parts_of_selection"]

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


def parts_of_selection(candidates: int, repeated: float, level: float) -> int:
    """By how much a level is divided if the best of several candidates is tested on the tasks that selected it.

    The best of n has luck of E[max] standard errors (Blom 1958, "Statistical estimates and transformed beta-variables"), and as large a part of it
    comes again as the scores on each task do. So the level is that of a critical value which is larger by that much. It is never
    lower than 1/n of the level, which is right without any assumption (Bonferroni).

    Args:
        candidates: how many there were, n.
        repeated: the correlation of the scores that selected with those that decide, over tasks, from 0 to 1, beyond what all candidates share.
        level: two-sided.

    Returns:
        A whole number from 1 to n.
    """
    if candidates < 2 or repeated <= 0:
        return 1
    normal = NormalDist()
    luck = normal.inv_cdf((candidates - 0.375) / (candidates + 0.25))
    critical = normal.inv_cdf(1 - level / 2) + min(1.0, repeated) * luck
    return min(candidates, math.ceil(level / (2 * normal.cdf(-critical)) - 1e-9))
