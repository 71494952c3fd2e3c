from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from evsys_sdk import SFT, Datum, TrainingBatch, option, register_algorithm


def focal_loss(data: Sequence[Datum], logprobs: Sequence[Any], *, gamma: float) -> Any:
    """Cross-entropy in which a token counts less the more certain the model is of it: -w (1 - p)^gamma log p, summed.

    Source: https://arxiv.org/abs/1708.02002. evsys differentiates it with respect to the logprobs.
    """
    terms = [
        np.sum(datum.loss_inputs["weights"] * (1 - np.exp(values)) ** gamma * -values)
        for datum, values in zip(data, logprobs, strict=True)
    ]
    return sum(terms)


@register_algorithm("focal")
class Focal(SFT):
    """Supervised fine-tuning with a focal loss."""

    @attrs.frozen(kw_only=True)
    class Config(SFT.Config):
        """Params of `sft`, and one more."""

        gamma: float = option(2.0, "How strongly certain tokens are down-weighted.", ge=1)

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        batch = await super().build_batch(step_idx)
        batch.loss_fn = partial(focal_loss, gamma=self.config.gamma)
        return batch
