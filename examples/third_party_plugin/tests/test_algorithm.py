"""What the algorithm promises, and what every algorithm does, tried on the backend `mock`."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from evsys import protocols
from evsys.types import Datum, TrainingBatch
from evsys_algo_sft import SFT
from evsys_conformance import AlgorithmConformance

from evsys_quantities import DigitSFT


class Characters:
    """A tokenizer whose tokens are characters."""

    vocab_size = 128
    eos_token_ids = (0,)

    def encode(self, text: str) -> list[int]:
        return [ord(char) for char in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))


def weights_of(text: str, digit_weight: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The weights of a batch with one row, in which `sft` trains all but the first character."""
    tokens = np.array(Characters().encode(text))
    weights = np.full(len(text) - 1, 1.0 / (len(text) - 1), dtype=np.float32)
    inputs = {"target_tokens": tokens[1:], "weights": weights}

    async def batch_of_sft(self: SFT, step_idx: int) -> TrainingBatch:
        return TrainingBatch(data=[Datum(tokens=tokens[:-1], loss_inputs=inputs)])

    monkeypatch.setattr(SFT, "build_batch", batch_of_sft)
    algorithm = DigitSFT(digit_weight=digit_weight)
    algorithm._tokenizer, algorithm._known = Characters(), {}
    (datum,) = asyncio.run(algorithm.build_batch(0)).data
    return [float(weight) for weight in datum.loss_inputs["weights"]]


def test_digits_weigh_more_and_all_weights_add_up_to_1(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = weights_of("=12 m", 3.0, monkeypatch)
    assert weights == pytest.approx([3 / 8, 3 / 8, 1 / 8, 1 / 8])


def test_weight_1_is_sft(monkeypatch: pytest.MonkeyPatch) -> None:
    assert weights_of("=12 m", 1.0, monkeypatch) == pytest.approx([0.25] * 4)


class TestConformance(AlgorithmConformance):
    """The shared checks: it trains, stops, resumes exactly and can be cancelled."""

    @pytest.fixture
    def plugin(self) -> protocols.Algorithm:
        return DigitSFT(steps=6, batch_size=4, learning_rate=0.02, save_every=3, digit_weight=3.0)
