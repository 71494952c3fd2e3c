"""The share of a token in the loss. Losses are sums, so that parts of a batch add up: the denominator is global."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["AGGREGATIONS", "token_shares"]

AGGREGATIONS = ("token", "sequence", "constant")


def token_shares(loss_agg: str, lengths: Sequence[int], longest: int) -> list[float]:
    """The factor of the loss of each trained token of a rollout.

    Args:
        loss_agg: `token` gives each token of the batch the same weight (DAPO, https://arxiv.org/abs/2503.14476),
            `sequence` each rollout, regardless of its length (GRPO, https://arxiv.org/abs/2402.03300; it favours short
            good answers and long bad ones), `constant` divides by the longest possible length, so that no length
            enters at all (Dr. GRPO, https://arxiv.org/abs/2503.20783).
        lengths: trained tokens of each rollout of the whole batch; 0 for one that isn't trained.
        longest: most tokens that a rollout may have.

    Returns:
        A number a rollout, 0 for one without tokens.

    Raises:
        ValueError: there is no such aggregation.
    """
    rollouts = sum(length > 0 for length in lengths)
    match loss_agg:
        case "token":
            total = sum(lengths)
            return [1.0 / total if length else 0.0 for length in lengths]
        case "sequence":
            return [1.0 / (rollouts * length) if length else 0.0 for length in lengths]
        case "constant":
            return [1.0 / (rollouts * longest) if length else 0.0 for length in lengths]
    raise ValueError(f"there is no loss_agg {loss_agg!r}; choose one of {', '.join(AGGREGATIONS)}")
