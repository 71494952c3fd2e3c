"""The tokenizer of `evsys/tiny` as files that the `tokenizers` library and transformers read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from evsys_runtime import ByteTokenizer
from evsys_runtime.rendering.templates import CHATML

#: Bytes that represent themselves in byte-level vocabularies; the others get characters from 256 on, in order.
_PRINTABLE = frozenset([*range(33, 127), *range(161, 173), *range(174, 256)])


def byte_characters() -> list[str]:
    """The character that represents each byte in byte-level vocabularies (the table of GPT-2)."""
    others = iter(range(256, 512))
    return [chr(byte if byte in _PRINTABLE else next(others)) for byte in range(256)]


def write_byte_tokenizer(folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocab = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = sorted(ByteTokenizer.special_ids, key=lambda text: ByteTokenizer.special_ids[text])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **ByteTokenizer.special_tokens}
    _write_json(folder / "tokenizer_config.json", settings)
    _write_json(folder / "generation_config.json", {"eos_token_id": list(ByteTokenizer.eos_token_ids)})
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-8", newline="")


def _write_json(path: Path, values: Mapping[str, object]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
