"""How likely given tokens are, as a service of text completions tells it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from aiohttp import web
from faulty_service import Faulty

from evsys.errors import BackendError
from evsys_std.inference.openai_compatible import OpenAICompatible, OwnPrice

TOKENS = [5, 6, 7]
PRICE = OwnPrice(prompt=2.0, completion=10.0)


def echo(*logprobs: Any, usage: Any = None, **fields: Any) -> dict[str, Any]:
    """The body of an answer: the tokens that were sent, and one more."""
    values = logprobs or (None, -0.5, -1.5, -2.5)
    choice = {"index": 0, "text": "abcd", "logprobs": {"token_logprobs": list(values)}, **fields}
    return {
        "object": "text_completion",
        "choices": [choice],
        "usage": usage or {"prompt_tokens": 3, "completion_tokens": 1},
    }


async def told(client: OpenAICompatible) -> Any:
    return await client.prompt_logprobs(TOKENS)


def test_the_tokens_are_sent_as_they_are_and_read_back(asked):
    service = Faulty(echo())
    found, _ = asked(service, told)
    assert service.bodies == [
        {
            "model": "m",
            "prompt": TOKENS,
            "echo": True,
            "logprobs": 1,
            "max_tokens": 1,
            "temperature": 1.0,
        }
    ]
    assert math.isnan(found.logprobs[0])
    assert found.logprobs[1:] == (-0.5, -1.5)
    assert (found.message.content, list(found.tokens)) == ("abcd", TOKENS)
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.unpriced) == (3, 1, 1)


def test_an_answer_without_a_further_token_is_as_good(asked):
    found, _ = asked(Faulty(echo(None, -0.5, -1.5)), told, extra={"max_tokens": 0, "logprobs": 0})
    assert found.logprobs[1:] == (-0.5, -1.5)


def test_what_json_cant_say_is_minus_infinity(asked):
    found, _ = asked(Faulty(echo(None, -9999.0, -1.5)), told)
    assert found.logprobs[1] == -math.inf


def test_what_it_costs_is_counted(asked):
    found, _ = asked(Faulty(echo()), told, price=PRICE)
    assert found.usage.cost_usd == pytest.approx((3 * 2 + 10) / 1e6)


def test_the_price_of_tokens_can_be_asked_for():
    client = OpenAICompatible(model="m", base_url="http://127.0.0.1:9/v1", price=PRICE)
    assert client.sampling_cost(1_000_000, 500_000) == 7.0
    assert OpenAICompatible(model="m", base_url="http://127.0.0.1:9/v1").sampling_cost(1, 1) is None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"choices": []}, "it has no choices"),
        (echo(text="x", logprobs=None), "it returns no logprobs"),
        (echo(-0.5), "it returns the logprobs of 1 tokens, and 3 were sent"),
        (echo(*[-0.5] * 9), "it returns the logprobs of 9 tokens, and 3 were sent"),
        (echo(None, None, -1.5), "a token's logprob is None"),
        (echo(None, "x", -1.5), "a token's logprob is 'x'"),
    ],
)
def test_a_service_that_doesnt_tell_is_refused_with_what_to_use(asked, body, why):
    with pytest.raises(BackendError, match="doesn't return logprobs of given tokens") as failure:
        asked(Faulty(body), told)
    assert why in failure.value.message
    assert "vLLM" in failure.value.hint


def test_what_a_service_refuses_is_told_once_with_its_status(asked):
    service = Faulty(lambda: web.json_response({"error": {"message": "no echo with logprobs"}}, status=400))
    with pytest.raises(BackendError, match="no echo with logprobs") as failure:
        asked(service, told)
    assert failure.value.facts["status"] == 400
    assert len(service.bodies) == 1


def test_a_busy_service_is_asked_again(asked):
    busy = lambda: web.json_response({"error": "busy"}, status=503, headers={"Retry-After": "0"})  # noqa: E731
    service = Faulty(busy, echo())
    found, _ = asked(service, told)
    assert found.logprobs[1:] == (-0.5, -1.5)
    assert len(service.bodies) == 2


@pytest.mark.parametrize("name", ["prompt", "echo"])
def test_what_is_asked_cant_be_overwritten(name):
    with pytest.raises(ValueError, match=f"{name!r} can't be given in extra"):
        OpenAICompatible(model="m", base_url="http://127.0.0.1:9/v1", extra={name: 1})
