"""Builds `tokenizer.json` from the vocabulary, merges and special tokens inside a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evsys.errors import ConfigError
from evsys_backend_local.models.gguf import GgufFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: `tokenizer.ggml.token_type` of control tokens such as `<|im_start|>`.
_CONTROL = 3


def tokenizer_from_gguf(file: GgufFile) -> Tokenizer:
    """Byte-level BPE with single-digit splitting (the `smollm` pre-tokeniser).

    Raises:
        ConfigError: the file's tokenizer is of another kind.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    meta = file.metadata
    kind, split = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")
    if kind != "gpt2" or split != "smollm":
        raise ConfigError(
            f"{file.path}: cannot build a tokenizer of model {kind!r} with pre-tokeniser {split!r}",
            hint="put the model's own tokenizer.json beside the GGUF file",
        )
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in meta["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [
        tokens[index] for index, kind in enumerate(meta["tokenizer.ggml.token_type"]) if kind == _CONTROL
    ]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


def special_names(file: GgufFile) -> dict[str, str]:
    """`bos_token`, `eos_token`, `pad_token` and `unk_token` as text, those that the file names."""
    meta = file.metadata
    tokens = meta["tokenizer.ggml.tokens"]
    ids = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    return {
        f"{short}_token": tokens[meta[f"tokenizer.ggml.{long}_token_id"]]
        for long, short in ids.items()
        if f"tokenizer.ggml.{long}_token_id" in meta
    }


def write_tokenizer(file: GgufFile, folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` into ``folder``."""
    import json

    tokenizer_from_gguf(file).save(str(folder / "tokenizer.json"))
    text = json.dumps(special_names(file), ensure_ascii=False, indent=2)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
    template = file.metadata.get("tokenizer.chat_template")
    if template:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8", newline="")
