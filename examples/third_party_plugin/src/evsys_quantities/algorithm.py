"""The algorithm `digit_sft`: supervised fine-tuning in which digits count more than words."""

from typing import Any, ClassVar

import attrs
import numpy as np
from evsys import option
from evsys.protocols import Tokenizer
from evsys.types import RunContext, TrainingBatch
from evsys_algo_sft import SFT, SFTParams
from numpy.typing import NDArray

__all__ = ["DigitSFT"]


class DigitSFT(SFT):
    """`sft`, but a token with a digit in it has `digit_weight` times the weight of another.

    In an answer such as `That is 3200 m.` a wrong digit is a wrong answer and a wrong word is not.
    """

    name: ClassVar[str] = "digit_sft"

    @attrs.frozen(kw_only=True)
    class Config(SFTParams):
        """The params of `sft`, and one more."""

        digit_weight: float = option(2.0, "Weight of a token with a digit; others have 1.", gt=0)

    _tokenizer: Tokenizer

    async def setup(self, ctx: RunContext) -> None:
        """Keep the model's tokenizer."""
        await super().setup(ctx)
        self._tokenizer = ctx.clients.policy.tokenizer
        self._known: dict[int, float] = {}

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        """The batch of `sft` with other weights, which add up to 1 as they did.

        It depends on the step alone, so that a run that is resumed goes on as it would have.
        """
        batch = await super().build_batch(step_idx)
        weights = [
            datum.loss_inputs["weights"] * self._factors(datum.loss_inputs["target_tokens"])
            for datum in batch.data
        ]
        total = sum(float(one.sum()) for one in weights)
        batch.data = [
            attrs.evolve(datum, loss_inputs={**datum.loss_inputs, "weights": one / total})
            for datum, one in zip(batch.data, weights, strict=True)
        ]
        return batch

    def _factors(self, tokens: NDArray[Any]) -> NDArray[np.float32]:
        return np.array([self._factor(int(token)) for token in tokens], dtype=np.float32)

    def _factor(self, token: int) -> float:
        if token not in self._known:
            has_digit = any(char.isdigit() for char in self._tokenizer.decode([token]))
            self._known[token] = self.config.digit_weight if has_digit else 1.0
        return self._known[token]
