"""Spending: the count of one answer, and the sum of many in words."""

from __future__ import annotations

import attrs

from evsys.types import Completion, Usage

__all__ = ["cost_words", "usage_of"]


def usage_of(completion: Completion) -> Usage:
    """The usage of an answer. One without a price counts as one of unknown price, with or without token counts."""
    used = completion.usage
    if used.cost_usd is not None or used.unpriced:
        return used
    return attrs.evolve(used, unpriced=1)


def cost_words(usage: Usage) -> str:
    """The money in words, which say where it is only the least that was spent."""
    if not usage.cost_usd:
        return "unknown cost" if usage.without_price else "no cost"
    amount = f"${usage.cost_usd:.4f}"
    if not usage.unpriced:
        return amount
    return f"at least {amount} ({usage.unpriced} without a known price)"
