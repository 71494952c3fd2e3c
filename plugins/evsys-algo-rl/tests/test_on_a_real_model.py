"""`rl` on the local backend with evsys/tiny: sampler and trainer are one model."""

import numpy as np
import pytest

from evsys.types import HarborTask, LoraSpec, ModelSpec, VerifierSpec
from evsys_backend_local import LocalBackend

WORDS = ("apple", "pear", "kiwi", "fig", "lemon", "cherry", "plum", "melon")


class Tasks(list):
    @property
    def fingerprint(self):
        return f"sha256:{len(self)}"


def words():
    return Tasks(
        HarborTask(
            task_id=word,
            instruction=f"do {word}",
            verifier=VerifierSpec(name="exact_match", expected=str(len(word))),
        )
        for word in WORDS
    )


@pytest.fixture
def tiny(new_run):
    return new_run(model=ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=4)))


PARAMS = {"batch_size": 8, "group_size": 8, "max_tokens": 12, "learning_rate": 1e-3}


@pytest.mark.parametrize("loss", ["importance_sampling", "gspo"])
async def test_at_the_first_step_the_ratio_is_one(tiny, loss):
    result = await tiny.train(words(), **PARAMS, steps=1, loss=loss, fields={"backend": LocalBackend()})
    assert result.metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert result.metrics["ratio_p01"] == pytest.approx(1.0, abs=1e-4)
    assert result.metrics["kl_sampler_trainer_max"] < 1e-8


async def test_the_reference_is_the_model_before_its_first_step(tiny):
    await tiny.train(words(), **PARAMS, steps=3, kl_coef=0.01, fields={"backend": LocalBackend()})
    found = tiny.values("kl_reference")
    assert found[0] == pytest.approx(0.0, abs=1e-8)
    assert found[2] > 1e-6


async def test_a_few_steps_raise_the_reward(tiny):
    more = {"steps": 15, "group_size": 16, "lora_rank": 8}
    await tiny.train(words(), **{**PARAMS, **more}, fields={"backend": LocalBackend()})
    rewards = tiny.values("reward")
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]) + 0.2
