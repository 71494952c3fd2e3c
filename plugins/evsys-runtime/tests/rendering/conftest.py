"""Tokenizers and templates of several families, small enough to read."""

import json
import shutil
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

TEMPLATES = Path(__file__).parent / "templates"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level_bpe() -> tokenizers.Tokenizer:
    """Byte-level BPE with a few merges, among them two newlines into one token."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = ["user assistant system", "the answer is\n\n\nhere and\n\n\nthere", "hello hello world"] * 20
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def bpe() -> tokenizers.Tokenizer:
    return byte_level_bpe()


@pytest.fixture
def model_dir(tmp_path: Path, bpe: tokenizers.Tokenizer) -> Path:
    """A model folder as a fetcher leaves it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(bpe.to_str(), encoding="utf-8")
    shutil.copy(TEMPLATES / "tools.jinja", folder / "chat_template.jinja")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>"}), encoding="utf-8"
    )
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model cache of this test's own."""
    root = tmp_path / "cache"
    monkeypatch.setenv("EVSYS_CACHE", str(root))
    return root
