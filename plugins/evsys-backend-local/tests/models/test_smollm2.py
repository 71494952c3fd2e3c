"""The real 135M model, where it is in the cache."""

import numpy as np
import pytest

from evsys.errors import ConfigError
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.models.catalogue import check
from evsys_backend_local.models.resolve import load_base, resolve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder():
    try:
        return resolve("smollm2-135m")
    except ConfigError as error:
        pytest.skip(f"smollm2-135m is not in the model cache: {error}")


@pytest.fixture(scope="module")
def engine(folder):
    engine = Engine(load_base("smollm2-135m"))
    yield engine
    engine.close()


def chat(tokenizer, question):
    text = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    )
    text += f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module")
def tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_the_cached_files_are_whole(folder):
    check("smollm2-135m")


@pytest.mark.parametrize(
    ("question", "word"), [("What is the capital of France?", "Paris"), ("What is 2 + 3?", "5")]
)
def test_greedy_answers_make_sense(engine, tokenizer, question, word):
    request = SampleRequest(
        prompt=chat(tokenizer, question), temperature=0, max_tokens=24, stop_tokens=frozenset([2])
    )
    sample = engine.sample(engine.base, [request])[0].samples[0]
    assert word in tokenizer.decode(sample.tokens)


def test_sampled_logprobs_are_the_trainers_within_1e_4(engine, tokenizer):
    model = engine.create_adapter(rank=8, seed=0)
    flat = model.params.flat
    flat[...] = np.random.default_rng(0).normal(0, 0.01, flat.size)
    model.lora.refresh()
    prompts = [chat(tokenizer, f"Tell me about {what}.") for what in ("music", "the weather", "Paris")]
    requests = [SampleRequest(prompt=p, n=4, max_tokens=12, seed=i) for i, p in enumerate(prompts)]
    outputs = engine.sample(model, requests)
    for request, output in zip(requests, outputs, strict=True):
        for sample in output.samples:
            scored = engine.compute_logprobs(model, [[*request.prompt, *sample.tokens]])[0]
            ratio = np.exp(scored[len(request.prompt) :] - sample.logprobs)
            assert np.abs(ratio - 1).max() < 1e-4


def test_text_survives_the_tokenizer(tokenizer):
    for text in ("Hello, world! 12345", "größe  \n\t漢字 🎉 café", "def f(x):\n    return x + 1\n"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text
