"""Tokenizers out of GGUF files; `test_oracles` compares them with those of transformers."""

import pytest

from evsys.errors import DataError
from evsys_backend_local.models.gguf import GgufFile
from evsys_backend_local.models.tokenizer import tokenizer_from_gguf, write_tokenizer

TEXT = "<|im_start|>the 12345 größe\n\t漢字 🎉  x<|im_end|>"


@pytest.fixture
def build(tmp_path, gguf_writer):
    def make(**changes):
        metadata = {**gguf_writer.tokenizer_metadata(), **changes}
        gguf_writer.write_gguf(tmp_path / "t.gguf", metadata, {})
        return tokenizer_from_gguf(GgufFile(tmp_path / "t.gguf"))

    return make


@pytest.mark.parametrize("kind", ["smollm", "qwen2", "llama-bpe"])
def test_every_text_comes_back_and_control_tokens_are_one_token(build, kind):
    tokenizer = build(**{"tokenizer.ggml.pre": kind})
    encoded = tokenizer.encode(TEXT, add_special_tokens=False)
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == TEXT
    assert (encoded.ids[0], encoded.ids[-1]) == (1, 2)
    assert "he" in encoded.tokens


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("smollm", ["1", "2", "3", "4", "5"]),
        ("qwen2", ["1", "2", "3", "4", "5"]),
        ("llama-bpe", ["123", "45"]),
    ],
)
def test_numbers_are_cut_as_the_model_learnt_them(build, gguf_writer, kind, numbers):
    tokens = [*gguf_writer.tokenizer_metadata()["tokenizer.ggml.tokens"], "12", "123", "45", "1234"]
    tokenizer = build(
        **{
            "tokenizer.ggml.pre": kind,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 3),
            "tokenizer.ggml.merges": ["h e", "1 2", "12 3", "4 5", "123 4"],
        }
    )
    assert tokenizer.encode("12345").tokens == numbers


def test_qwen_composes_accents_and_the_others_do_not(build):
    apart = "e\u0301"
    decoded = {}
    for kind in ("qwen2", "llama-bpe"):
        tokenizer = build(**{"tokenizer.ggml.pre": kind})
        decoded[kind] = tokenizer.decode(tokenizer.encode(apart).ids)
    assert decoded == {"qwen2": "\u00e9", "llama-bpe": apart}


def test_llama_takes_a_piece_that_is_in_the_vocabulary_whole(build, gguf_writer):
    tokens = [*gguf_writer.tokenizer_metadata()["tokenizer.ggml.tokens"], "abc"]
    changes = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 3),
    }
    found = {
        kind: build(**changes, **{"tokenizer.ggml.pre": kind}).encode("abc").tokens
        for kind in ("llama-bpe", "qwen2")
    }
    assert found == {"llama-bpe": ["abc"], "qwen2": ["a", "b", "c"]}


def test_tokens_that_users_defined_are_one_token_and_no_special_ones(build, gguf_writer):
    tokens = [*gguf_writer.tokenizer_metadata()["tokenizer.ggml.tokens"], "<think>"]
    tokenizer = build(
        **{
            "tokenizer.ggml.pre": "qwen2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 4) + [4],
        }
    )
    ids = tokenizer.encode("<think>a<|im_end|>").ids
    assert ids[0] == len(tokens) - 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>a"


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer.ggml.merges": ["h q"]},
        {"tokenizer.ggml.merges": ["he"]},
        {"tokenizer.ggml.tokens": [1, 2]},
    ],
)
def test_a_vocabulary_that_makes_no_sense_is_an_error(build, changes):
    with pytest.raises(DataError, match=r"t\.gguf: damaged: its tokenizer"):
        build(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.bos_token_id": 10**6}, "bos_token_id is 1000000, and it has"),
        ({"tokenizer.ggml.eos_token_id": "x"}, "eos_token_id is 'x'"),
        ({"tokenizer.chat_template": 1.5}, "chat_template is not a string"),
    ],
)
def test_special_tokens_and_templates_that_make_no_sense_are_an_error(
    tmp_path, gguf_writer, changes, message
):
    gguf_writer.write_gguf(tmp_path / "t.gguf", {**gguf_writer.tokenizer_metadata(), **changes}, {})
    with pytest.raises(DataError, match=message):
        write_tokenizer(GgufFile(tmp_path / "t.gguf"), tmp_path)
