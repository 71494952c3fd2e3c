"""A prepared mock client and a small task with an answer that a prompt's words decide."""

import asyncio
import inspect

import numpy as np
import pytest

from evsys.types import Datum, LoraSpec, ModelSpec, SamplingParams
from evsys_backend_mock import MockBackend

ANSWERS = {
    "SEND_EMAIL": ("email", "mail", "inbox"),
    "PLAY_SONG": ("song", "music", "tune"),
    "GET_WEATHER": ("rain", "weather", "sunny"),
    "CREATE_ISSUE": ("bug", "issue", "ticket"),
}
TRAIN = ("please {} for alice now", "can you handle the {} about bob", "the boss wants a {} today")
HELD_OUT = ("could somebody take care of {} soon", "we should sort out {} with them")


def _prompt(question):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def pytest_pyfunc_call(pyfuncitem):
    """Run `async def` tests in an event loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


class Task:
    """Questions with answers; `shuffled` gives each question the answer of another."""

    def __init__(self, shuffled=False):
        pairs = [(t.format(w), answer) for t in TRAIN for answer, words in ANSWERS.items() for w in words]
        answers = [answer for _, answer in pairs]
        if shuffled:
            answers = list(np.random.default_rng(5).permutation(answers))
        self.train = [(question, answer) for (question, _), answer in zip(pairs, answers, strict=True)]
        self.held_out = [
            (t.format(w), answer) for t in HELD_OUT for answer, words in ANSWERS.items() for w in words
        ]

    def data(self, tokenizer):
        return [_datum(tokenizer, question, answer) for question, answer in self.train]


def _datum(tokenizer, question, answer):
    before = tokenizer.encode(_prompt(question))
    sequence = np.array(before + tokenizer.encode(f"{answer}<|im_end|>"))
    weights = np.zeros(len(sequence))
    weights[len(before) :] = 1.0
    return Datum(tokens=sequence[:-1], loss_inputs={"target_tokens": sequence[1:], "weights": weights[1:]})


@pytest.fixture
def spec():
    def make(**fields):
        lora = LoraSpec(rank=fields.pop("rank", 32), alpha=fields.pop("alpha", 32.0))
        return ModelSpec(**{"name": "any/model", "lora": lora, **fields})

    return make


@pytest.fixture
def prepare(spec, tmp_path):
    async def make(seed=0, restore=None, **fields):
        return await MockBackend().prepare(spec(**fields), tmp_path, seed, restore)

    return make


@pytest.fixture
def make_task():
    return Task


@pytest.fixture
def accuracy():
    """Share of questions that a client's snapshot answers right, whole text, greedily."""

    async def score(client, questions):
        sampler = await client.sampling_client()
        prompts = [client.tokenizer.encode(_prompt(question)) for question, _ in questions]
        greedy = SamplingParams(max_tokens=20, temperature=0.0)
        results = await asyncio.gather(*(sampler.sample(tokens, greedy) for tokens in prompts))
        texts = [client.tokenizer.decode(result.sequences[0].tokens) for result in results]
        return np.mean(
            [text == f"{answer}<|im_end|>" for text, (_, answer) in zip(texts, questions, strict=True)]
        )

    return score
