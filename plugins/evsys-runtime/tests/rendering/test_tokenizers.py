import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import ConfigError, DataError
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.rendering.tokenizers import ByteTokenizer, TokenizersTokenizer, load_tokenizer

BYTES = ByteTokenizer()
SPECIAL_TEXTS = st.sampled_from(["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "|>", "<"])


@given(st.lists(st.text() | SPECIAL_TEXTS).map("".join))
def test_bytes_decode_to_the_text_they_came_from(text: str):
    ids = BYTES.encode(text)
    assert BYTES.decode(ids) == text
    assert all(0 <= token < BYTES.vocab_size for token in ids)


def test_special_tokens_written_in_a_text_become_their_ids():
    assert BYTES.encode("<|im_start|>a<|im_end|>é<|endoftext|>") == [256, 97, 257, 0xC3, 0xA9, 258]
    assert set(BYTES.eos_token_ids) == {257, 258}


def test_bytes_of_a_cut_character_decode_to_the_replacement_character():
    assert BYTES.decode(BYTES.encode("é")[:1]) == "\ufffd"
    assert BYTES.decode([256, 0xC3, 257]) == "<|im_start|>\ufffd<|im_end|>"


def test_ids_may_be_numpy_numbers():
    assert BYTES.decode(np.array([104, 105, 257], dtype=np.int64)) == "hi<|im_end|>"
    assert BYTES.decode(np.array([104, 105], dtype=np.int64)) == "hi"


@pytest.mark.parametrize("token", [259, -1])
def test_an_id_outside_the_vocabulary_is_refused(token: int):
    with pytest.raises(ValueError, match=f"{token} is outside"):
        BYTES.decode([104, token])


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_half_a_surrogate_pair_is_a_data_error(kind: str, bpe):
    tokenizer = BYTES if kind == "bytes" else TokenizersTokenizer(bpe, eos_token_ids=[2])
    with pytest.raises(DataError, match=r"half a surrogate pair \(U\+D83D\)"):
        tokenizer.encode("cut \ud83d here")


def test_a_tokenizer_json_is_loaded_with_its_end_token(model_dir: Path, bpe):
    tokenizer = load_tokenizer(model_dir)
    assert tokenizer.eos_token_ids == (2, 0)
    assert tokenizer.vocab_size == bpe.get_vocab_size() > 259
    assert tokenizer.special_tokens == {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}
    ids = tokenizer.encode("hello<|im_end|>\n")
    assert 2 in ids
    assert tokenizer.decode(ids) == "hello<|im_end|>\n"


def test_nothing_is_added_around_a_text(model_dir: Path):
    from tokenizers.processors import TemplateProcessing

    tokenizer = load_tokenizer(model_dir)
    plain = tokenizer.encode("hello")
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    tokenizer._tokenizer.enable_truncation(1)
    wrapped = TokenizersTokenizer(tokenizer._tokenizer, eos_token_ids=[2])
    assert wrapped.encode("hello") == plain


@given(st.text())
def test_byte_level_bpe_round_trips_every_text(bpe, text: str):
    tokenizer = TokenizersTokenizer(bpe, eos_token_ids=[2])
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_end_tokens_come_from_the_generation_config_too(model_dir: Path):
    (model_dir / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}), encoding="utf-8")
    assert load_tokenizer(model_dir).eos_token_ids == (2, 0)


def test_an_answer_ends_at_a_known_end_token_that_the_folder_does_not_declare(model_dir: Path):
    renderer = load_renderer(str(model_dir))
    ids = renderer.tokenizer.encode("4<|endoftext|>")
    assert ids[-1] in renderer.stop_token_ids
    assert renderer.parse(ids).content == "4"


def test_a_token_that_ends_only_a_part_of_some_answers_is_an_end_only_if_nothing_is_declared(
    tmp_path: Path,
):
    from tokenizers import Tokenizer, models

    library = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    library.add_special_tokens(["<|end|>", "<|return|>", "<|call|>"])
    library.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).eos_token_ids == (3, 2)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [4]}), encoding="utf-8")
    assert load_tokenizer(tmp_path).eos_token_ids == (4, 3)


def test_known_end_tokens_are_used_when_nothing_declares_one(model_dir: Path):
    (model_dir / "tokenizer_config.json").unlink()
    assert load_tokenizer(model_dir).eos_token_ids == (2, 0)


def test_a_tokenizer_without_any_end_token_is_refused_with_the_fix(tmp_path: Path):
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")).save(
        str(tmp_path / "tokenizer.json")
    )
    with pytest.raises(DataError, match=r"the token that ends a turn is unknown.*tokenizer_config.json"):
        load_tokenizer(tmp_path)


def test_a_broken_tokenizer_json_is_named(model_dir: Path):
    path = model_dir / "tokenizer.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="not a tokenizer") as caught:
        load_tokenizer(model_dir)
    assert caught.value.source == str(path)
    path.unlink()
    with pytest.raises(DataError, match="there is no tokenizer.*copy the model's tokenizer.json there"):
        load_tokenizer(model_dir)


def test_a_broken_file_beside_the_tokenizer_is_named(model_dir: Path):
    (model_dir / "tokenizer_config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match="not a JSON object"):
        load_tokenizer(model_dir)


def test_the_tiny_model_speaks_bytes():
    assert isinstance(load_tokenizer("evsys/tiny"), ByteTokenizer)


def test_equal_files_have_equal_fingerprints(model_dir: Path, bpe):
    first, second = load_tokenizer(model_dir), load_tokenizer(model_dir)
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint.startswith("sha256:")
    assert first.fingerprint != BYTES.fingerprint


@pytest.mark.usefixtures("cache")
def test_an_unknown_model_is_a_config_error():
    with pytest.raises(ConfigError):
        load_tokenizer("nobody/nothing")
