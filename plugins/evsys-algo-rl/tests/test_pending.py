"""Batches in a checkpoint."""

import json

import numpy as np

from evsys.types import Datum, TrainingBatch
from evsys_algo_rl.params import RLParams
from evsys_algo_rl.pending import pack, unpack


def test_a_batch_comes_back_bit_by_bit():
    rng = np.random.default_rng(0)
    data = [
        Datum(
            tokens=rng.integers(0, 9, n),
            loss_inputs={"target_tokens": rng.integers(0, 9, n), "logprobs": rng.normal(size=n)},
            meta={"group": "t/1", "row": 0, "turns": [0], "policy_version": 3},
        )
        for n in (1, 4)
    ]
    batch = TrainingBatch(data=data, loss_fn="ppo", row_ids=("a", "b"), metrics={"reward": 0.25})
    text = pack(batch)
    assert json.loads(json.dumps(text)) == text
    found = unpack(text, RLParams(loss="ppo", clip_low=0.1))
    assert (found.row_ids, found.metrics, found.loss_fn) == (batch.row_ids, batch.metrics, "ppo")
    assert found.loss_params == {"clip_low": 0.1}
    for ours, theirs in zip(found.data, data, strict=True):
        assert ours.meta == theirs.meta
        assert ours.tokens.tobytes() == theirs.tokens.tobytes()
        assert {n: a.tobytes() for n, a in ours.loss_inputs.items()} == {
            n: a.tobytes() for n, a in theirs.loss_inputs.items()
        }
