"""Tokens of rollouts as text."""

import pytest

from evsys_dashboard.api.token_texts import token_texts


def test_tokens_of_a_known_model_are_decoded_one_by_one():
    turns = [{"tokens": [111, 107, 257]}, {"tokens": []}, {}]
    texts, *others = token_texts("evsys/tiny", turns)
    assert texts[:2] == ("o", "k")
    assert (len(texts), others) == (3, [None, None])


@pytest.mark.parametrize("model", [None, "unknown-model", "/etc", ".", "~/model", "..\\model"])
def test_a_model_that_is_elsewhere_or_a_path_has_no_texts(model):
    assert token_texts(model, [{"tokens": [1]}]) == (None,)


@pytest.mark.parametrize("tokens", [["a"], [None], [10**30], [-1], 7, "ok"])
def test_tokens_that_are_none_give_no_text_and_no_failure(tokens):
    [texts] = token_texts("evsys/tiny", [{"tokens": tokens}])
    assert texts is None or len(texts) == len(tokens)
