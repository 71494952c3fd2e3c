"""Tokens that a run has sent to a server, and what they cost by the price list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from evsys_runtime.accounting.prices import Price

__all__ = ["Meter"]


@attrs.define(kw_only=True)
class Meter:
    """Counts of one run. `price` is the model's, None where no one knows it: costs are unknown then, never 0."""

    price: Price | None = None
    trained_tokens: int = 0
    forward_tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The counts, by name."""
        return {
            field.name: getattr(self, field.name) for field in attrs.fields(Meter) if field.name != "price"
        }

    def trained(self, tokens: int) -> None:
        """A forward and backward pass."""
        self.trained_tokens += tokens

    def forwarded(self, tokens: int) -> None:
        """A forward pass alone."""
        self.forward_tokens += tokens

    def sampled(self, *, prompt: int, completion: int) -> None:
        """A sampling call."""
        self.prompt_tokens += prompt
        self.completion_tokens += completion

    def training_cost(self, trained_tokens: int) -> float | None:
        """US dollars of training on so many tokens; None where no price is known."""
        if self.price is None or self.price.training is None:
            return None
        return trained_tokens * self.price.training / 1_000_000

    def sampling_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """US dollars of a sample; None where no price is known."""
        return None if self.price is None else self.price.cost(prompt_tokens, completion_tokens)
