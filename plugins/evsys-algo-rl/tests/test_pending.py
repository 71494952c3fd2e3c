"""Batches in a checkpoint."""

import json

import numpy as np
import pytest

from evsys.errors import StoreError
from evsys.types import Datum, LossResult, TrainingBatch
from evsys_algo_rl.batches import NO_SIGNAL, objective
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
    params = RLParams(loss="ppo", clip_low=0.1)
    loss = {"loss_fn": "ppo", "loss_params": {"clip_low": 0.1}}
    batch = TrainingBatch(data=data, row_ids=("a", "b"), metrics={"reward": 0.25}, **loss)
    text = pack(batch, params)
    assert json.loads(json.dumps(text)) == text
    found = unpack(text, params)
    assert (found.row_ids, found.metrics, found.loss_fn) == (batch.row_ids, batch.metrics, "ppo")
    assert found.loss_params == {"clip_low": 0.1}
    for ours, theirs in zip(found.data, data, strict=True):
        assert ours.meta == theirs.meta
        assert ours.tokens.tobytes() == theirs.tokens.tobytes()
        assert {n: a.tobytes() for n, a in ours.loss_inputs.items()} == {
            n: a.tobytes() for n, a in theirs.loss_inputs.items()
        }


DATA = [Datum(tokens=np.arange(2), loss_inputs={"target_tokens": np.arange(2)})]


def own(data, logprobs, **params):
    return LossResult(loss=0.0, grads=[np.zeros_like(values) for values in logprobs])


@pytest.mark.parametrize(
    ("loss_fn", "loss_params"),
    [
        (own, {}),
        ("cispo", {}),
        ("ppo", {}),
        ("ppo", {"clip_low": np.zeros(2)}),
        (NO_SIGNAL, {"clip_low": 0.1}),
    ],
    ids=["function", "name", "no_settings", "settings_of_any_type", "name_of_no_signal"],
)
def test_a_batch_with_a_loss_of_its_own_is_refused_rather_than_trained_with_another(loss_fn, loss_params):
    params = RLParams(loss="ppo", clip_low=0.1)
    batch = TrainingBatch(data=DATA, loss_fn=loss_fn, loss_params=loss_params)
    with pytest.raises(StoreError, match="`batch_of`"):
        unpack(pack(batch, params), params)


@pytest.mark.parametrize(
    "params",
    [
        RLParams(loss="ppo", clip_low=0.1),
        RLParams(loss=NO_SIGNAL),
        RLParams(loss="ppo", clip_high=0.3, ratio_cap=2.0, mask_token_ratio=(0.5, 2.0)),
        RLParams(kl_coef=0.1, kl_estimator="k2"),
    ],
    ids=["named", "no_signal_by_name", "corrected", "with_a_penalty"],
)
def test_the_losses_of_the_params_and_of_no_signal_come_back(params):
    for loss_fn, loss_params in (objective(params), (NO_SIGNAL, {})):
        batch = TrainingBatch(data=DATA, loss_fn=loss_fn, loss_params=loss_params)
        found = unpack(pack(batch, params), params)
        assert (found.loss_fn, found.loss_params) == (loss_fn, loss_params)
