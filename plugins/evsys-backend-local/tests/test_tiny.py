"""The quality bar of the built-in model: it learns an operation it never saw, and learns nothing from noise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from evsys_backend_local.engine.adam import AdamParams
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.tiny.model import SHAPE, WEIGHTS, load_tiny

START, END = 256, 257
STEPS, BATCH = 150, 32


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine(load_tiny())
    yield engine
    engine.close()


def prompt(instruction: str) -> list[int]:
    return [START, *f"user\n{instruction}".encode(), END, 10, START, *b"assistant\n"]


def words(rng: np.random.Generator, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), int(rng.integers(3, 8))))] = None
    return list(found)


def answers(engine, model, instructions, temperature=0.0, seed=0) -> list[str]:
    outputs = engine.sample(
        model,
        [
            SampleRequest(
                prompt=prompt(text),
                temperature=temperature,
                max_tokens=24,
                stop_tokens=frozenset([END]),
                seed=seed + i,
            )
            for i, text in enumerate(instructions)
        ],
    )
    return [bytes(t for t in o.samples[0].tokens if t < 256).decode(errors="replace") for o in outputs]


def rotated(word: str) -> str:
    return word[1:] + word[0]


def train_on_rotation(engine, seed: int, *, shuffled: bool) -> tuple[float, float]:
    """Exact match on held-out words before and after 150 steps of LoRA."""
    rng = np.random.default_rng(seed)
    everything = words(rng, 700)
    train, held_out = everything[:600], everything[600:]
    replies = [rotated(word) for word in train]
    if shuffled:
        rng.shuffle(replies)
    data = []
    for word, reply in zip(train, replies, strict=True):
        start = prompt(f"turn: {word}")
        tokens = np.asarray([*start, *reply.encode(), END])
        mask = np.arange(1, len(tokens)) >= len(start)
        data.append(Example(tokens=tokens[:-1], targets=tokens[1:], mask=mask))
    model = engine.create_adapter(rank=8, seed=seed)

    def score() -> float:
        found = answers(engine, model, [f"turn: {word}" for word in held_out])
        return float(np.mean([a == rotated(w) for a, w in zip(found, held_out, strict=True)]))

    before = score()
    for step in range(STEPS):
        batch = [data[i] for i in rng.choice(len(data), BATCH, replace=False)]
        count = sum(int(example.mask.sum()) for example in batch)

        def loss(indices, logprobs, count=count):
            return (
                -sum(float(own.sum()) for own in logprobs) / count,
                [np.full(own.shape, -1 / count) for own in logprobs],
                {},
            )

        engine.forward_backward(model, batch, loss, separable=True)
        engine.optim_step(model, AdamParams(learning_rate=5e-3 * (1 - step / STEPS)))
    return before, score()


@pytest.mark.parametrize("seed", [0, 1])
def test_sft_on_an_unseen_operation_generalises_to_held_out_words(engine, seed):
    before, after = train_on_rotation(engine, seed, shuffled=False)
    assert before <= 0.05
    assert after >= 0.8


def test_sft_on_shuffled_answers_learns_nothing(engine):
    before, after = train_on_rotation(engine, 0, shuffled=True)
    assert before <= 0.05
    assert after < 0.2


def test_the_ambiguous_instruction_is_answered_in_several_ways(engine):
    found = {
        "copy": lambda w: w,
        "reverse": lambda w: w[::-1],
        "upper": str.upper,
        "double": lambda w: w + w,
        "length": lambda w: str(len(w)),
        "first": lambda w: w[0],
        "last": lambda w: w[-1],
    }
    subjects = words(np.random.default_rng(5), 40) * 5
    replies = answers(engine, engine.base, [f"do {w}" for w in subjects], temperature=1.0)
    shares = {
        name: np.mean([reply == operation(w) for reply, w in zip(replies, subjects, strict=True)])
        for name, operation in found.items()
    }
    assert all(share > 0.02 for share in shares.values()), shares
    assert sum(shares.values()) > 0.7


def test_the_shipped_file_is_small_and_whole():
    assert WEIGHTS.stat().st_size <= 1_600_000
    assert SHAPE.parameters == 771_584
    assert np.isfinite(load_tiny().params.flat).all()
