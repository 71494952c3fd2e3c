import pytest

from evsys.types import Completion, Message, Usage
from evsys_runtime.accounting.usage import cost_words, usage_of


def answer(**usage: float) -> Completion:
    return Completion(
        message=Message(role="assistant", content="a"), finish_reason="stop", usage=Usage(**usage)
    )


def test_an_answer_without_a_price_is_counted_as_one_even_if_it_tells_no_tokens():
    assert usage_of(answer()) == Usage(unpriced=1)
    assert usage_of(answer(prompt_tokens=3)) == Usage(prompt_tokens=3, unpriced=1)
    assert usage_of(answer(unpriced=2)).unpriced == 2
    assert usage_of(answer(prompt_tokens=3, cost_usd=0.0)) == Usage(prompt_tokens=3, cost_usd=0.0)


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(cost_usd=1.5), "$1.5000"),
        (Usage(cost_usd=0.0, prompt_tokens=9), "no cost"),
        (Usage(), "no cost"),
        (Usage(prompt_tokens=9), "unknown cost"),
        (Usage(unpriced=2), "unknown cost"),
        (Usage(cost_usd=0.0, unpriced=2), "unknown cost"),
        (Usage(cost_usd=1.5, unpriced=2), "at least $1.5000 (2 without a known price)"),
    ],
)
def test_what_is_not_known_is_never_told_as_a_sum(usage: Usage, words: str):
    assert cost_words(usage) == words
