"""`POST /completions`: plain texts and token ids, with what the model thinks of them."""

import asyncio
import math
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import numpy as np
import pytest
from served_mock import mock_model

from evsys.types import SamplingParams
from evsys_runtime.serving.models import FixedCatalogue, ServedModel
from evsys_runtime.serving.server import chat_server

HI = [104, 105, 33]


@pytest.fixture
def model(tmp_path: Path) -> ServedModel:
    return mock_model(tmp_path, context_length=64)


def ask(model: ServedModel, *, texts: bool = True, **body: Any) -> tuple[int, Any]:
    async def main() -> tuple[int, Any]:
        async with chat_server(FixedCatalogue(model), texts=texts) as url, aiohttp.ClientSession() as session:
            async with session.post(f"{url}/completions", json={"model": "m", **body}) as response:
                answer = await response.json() if texts else None
                return response.status, answer

    return asyncio.run(main())


def only(answer: tuple[int, Any]) -> Any:
    status, body = answer
    assert status == 200, body
    [choice] = body["choices"]
    return choice


def near(model: ServedModel, tokens: list[int]) -> list[float]:
    return asyncio.run(model.sampling_client.compute_logprobs(tokens)).tolist()


def test_an_echo_without_an_answer_tells_the_bits_that_the_model_tells_in_process(model):
    status, body = ask(model, prompt=HI, echo=True, max_tokens=0, logprobs=0)
    [choice] = body["choices"]
    assert (status, choice["text"], choice["finish_reason"]) == (200, "hi!", "length")
    told = choice["logprobs"]
    assert told["tokens"] == ["h", "i", "!"]
    assert told["text_offset"] == [0, 1, 2]
    assert told["token_logprobs"][0] is None
    assert np.float32(told["token_logprobs"][1:]).tolist() == near(model, HI)[1:]
    assert told["top_logprobs"] is None
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}
    assert body["object"] == "text_completion"


@pytest.mark.parametrize("max_tokens", [0, 1, 4])
def test_an_echo_with_the_likeliest_has_an_entry_for_every_token(model, max_tokens):
    choice = only(ask(model, prompt="hi!", echo=True, max_tokens=max_tokens, logprobs=2, seed=3))
    told = choice["logprobs"]
    said = len(told["tokens"]) - len(HI)
    assert said == max_tokens if max_tokens < 2 else said >= 1
    assert len(told["token_logprobs"]) == len(told["top_logprobs"]) == len(told["text_offset"]) == 3 + said
    assert np.float32(told["token_logprobs"][1:3]).tolist() == near(model, HI)[1:]
    assert told["top_logprobs"][0] is None
    for token, logprob, row in list(
        zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True)
    )[1:]:
        assert 2 <= len(row) <= 3
        assert math.isclose(row[token], logprob, rel_tol=1e-6)
        assert logprob <= max(row.values()) + 1e-6


def test_a_text_goes_on_as_the_sampler_says(model):
    wanted = SamplingParams(max_tokens=6, seed=5, stop_token_ids=tuple(model.tokenizer.eos_token_ids))
    [sequence] = asyncio.run(model.sampling_client.sample(HI, wanted)).sequences
    choice = only(ask(model, prompt="hi!", max_tokens=6, seed=5, logprobs=0, return_token_ids=True))
    assert choice["token_ids"] == list(sequence.tokens)
    assert choice["prompt_token_ids"] == HI
    assert choice["logprobs"]["token_logprobs"] == list(sequence.logprobs)
    said = [token for token in sequence.tokens if token not in model.tokenizer.eos_token_ids]
    assert choice["text"] == model.tokenizer.decode(said)
    assert choice["finish_reason"] == sequence.finish_reason


def test_the_likeliest_of_a_looked_at_prompt_are_those_beside_which_one_token_is_drawn(model):
    looked_at = only(ask(model, prompt=HI, echo=True, max_tokens=0, logprobs=3))["logprobs"]
    drawn = only(ask(model, prompt=HI, echo=True, max_tokens=1, logprobs=3, seed=1))["logprobs"]
    for row, other in zip(looked_at["top_logprobs"][1:], drawn["top_logprobs"][1:3], strict=True):
        assert row == pytest.approx(other, rel=1e-5)
    alone = only(ask(model, prompt=HI[:1], echo=True, max_tokens=0, logprobs=3))["logprobs"]
    assert (alone["token_logprobs"], alone["top_logprobs"]) == ([None], [None])


def test_every_prompt_has_its_choices_in_order(model):
    status, body = ask(model, prompt=["hi", "ho!"], n=2, max_tokens=3, echo=True, seed=1)
    assert status == 200
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [choice["text"][:2] for choice in body["choices"]] == ["hi", "hi", "ho", "ho"]
    assert all(choice["logprobs"] is None for choice in body["choices"])
    assert body["usage"]["prompt_tokens"] == 5


def test_a_sampling_client_that_gives_too_few_answers_fails_the_request(model):
    whole = model.sampling_client

    class OneOnly:
        version = 0

        async def sample(self, prompt, params, n=1):
            return await whole.sample(prompt, params, 1)

    status, body = ask(attrs.evolve(model, sampling_client=OneOnly()), prompt=["hi", "ho!"], n=2)
    assert status == 500
    assert "gave 1 answers, and was asked for 2" in body["error"]["message"]


def test_tokens_are_named_by_their_ids_for_who_asks(model):
    wanted = {
        "prompt": [HI],
        "echo": True,
        "max_tokens": 0,
        "logprobs": 1,
        "return_tokens_as_token_ids": True,
    }
    told = only(ask(model, **wanted))["logprobs"]
    assert told["tokens"] == ["token_id:104", "token_id:105", "token_id:33"]
    assert all(name.startswith("token_id:") for name in told["top_logprobs"][1])


def test_a_text_ends_before_its_stop(model):
    whole = only(ask(model, prompt="hi!", max_tokens=12, seed=5))["text"]
    stop = whole[2]
    assert (
        only(ask(model, prompt="hi!", max_tokens=12, seed=5, stop=stop))["text"] == whole[: whole.index(stop)]
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [999_999]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 0, "echo": True, "n": 2}, "n"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "top_k": 10**30}, "top_k"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "echo": 1}, "echo"),
        ({"prompt": "a", "stream": True}, "stream"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 4}, "best_of"),
        ({"prompt": "a", "logit_bias": {"1": 2}}, "logit_bias"),
        ({"prompt": "a" * 60, "max_tokens": 5}, "prompt"),
    ],
)
def test_what_cant_be_honoured_is_refused_by_its_parameter(model, body, param):
    status, answer = ask(model, **body)
    assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize("logprobs", [0, 2])
def test_a_prompt_that_fills_the_context_can_be_looked_at(model, logprobs):
    told = only(ask(model, prompt="a" * 64, max_tokens=0, echo=True, logprobs=logprobs))["logprobs"]
    assert np.float32(told["token_logprobs"][1:]).tolist() == near(model, [97] * 64)[1:]
    if logprobs:
        assert all(row is not None and len(row) >= 2 for row in told["top_logprobs"][1:])
    status, answer = ask(model, prompt="a" * 65, max_tokens=0, echo=True, logprobs=logprobs)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


def test_a_server_of_conversations_alone_has_no_such_path(model):
    assert ask(model, texts=False, prompt="a")[0] == 404
