"""An algorithm trains one arm: it turns rows into batches, drives the training client, and reports how the run ended.

Most algorithms inherit from `BaseAlgorithm` of `evsys-runtime` and write `build_batch` alone; the loop around it, with its
schedule, checkpoints and health checks, is then [the toolkit's](../training-loop.md). `SFT` can be
[inherited from](../sft.md) in the same way. Without these, an algorithm only needs `train`.

## In an experiment file

```yaml
run:
  algorithm:
    kind: last_words
    params: {learning_rate: 1e-3, steps: 20, batch_size: 4}
```
"""

import numpy as np

from evsys import register_algorithm
from evsys.types import Datum, TrainingBatch
from evsys_runtime import BaseAlgorithm


@register_algorithm("last_words")
class LastWords(BaseAlgorithm):
    """Learns the last message of each conversation, all of its tokens alike."""

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        rows = [self.ctx.data[number] for number in self.take_rows(step_idx)]
        encode = self.ctx.clients.policy.tokenizer.encode
        texts = [np.array(encode(f" {row.messages[-1].content}"), dtype=np.int64) for row in rows]
        trained = sum(len(tokens) - 1 for tokens in texts)
        data = [
            Datum(
                tokens=tokens[:-1],
                loss_inputs={"target_tokens": tokens[1:], "weights": np.full(len(tokens) - 1, 1 / trained)},
            )
            for tokens in texts
        ]
        return TrainingBatch(data=data, row_ids=tuple(row.row_id for row in rows))
