"""Builds `tokenizer.json` from the vocabulary, merges and special tokens inside a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import ConfigError, DataError
from evsys_backend_local.models.gguf import GgufFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: The metadata that is a model's chat template.
CHAT_TEMPLATE = "tokenizer.chat_template"

#: `tokenizer.ggml.token_type` of control tokens such as `<|im_start|>`, and of others that are never split.
_CONTROL, _USER_DEFINED = 3, 4

#: Words, numbers and spaces as GPT-4's tokenizer splits them; Qwen2 and Llama 3 differ in the digits of a number.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@attrs.frozen(kw_only=True)
class _Split:
    """How text is cut into pieces before merging.

    Attributes:
        pattern: the pieces; None leaves them to the byte-level step, as in GPT-2.
        digits: each digit is a piece of its own, before anything else.
        compose: Unicode is composed (NFC) first.
        whole: a piece in the vocabulary isn't merged from its parts.
    """

    pattern: str | None = None
    digits: bool = False
    compose: bool = False
    whole: bool = False


#: By `tokenizer.ggml.pre`.
_SPLITS = {
    "smollm": _Split(digits=True),
    "qwen2": _Split(pattern=_WORDS % r"\p{N}", compose=True),
    "llama-bpe": _Split(pattern=_WORDS % r"\p{N}{1,3}", whole=True),
}


def tokenizer_from_gguf(file: GgufFile) -> Tokenizer:
    """Byte-level BPE of SmolLM, Qwen2, Qwen3 or Llama 3.

    Raises:
        ConfigError: the file's tokenizer is of another kind.
        DataError: its vocabulary is missing or damaged.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models

    meta = file.metadata
    kind, name = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")
    split = _SPLITS.get(str(name))
    if kind != "gpt2" or split is None:
        known = ", ".join(_SPLITS)
        raise ConfigError(
            f"{file.path}: cannot build a tokenizer of model {kind!r} with pre-tokeniser {name!r} ({known} can be built)",
            hint="put the model's own tokenizer.json next to the GGUF file, in the folder given as model.name",
        )
    try:
        tokens: list[str] = meta["tokenizer.ggml.tokens"]
        types: list[int] = meta["tokenizer.ggml.token_type"]
        merges = [_pair(merge) for merge in meta["tokenizer.ggml.merges"]]
        vocab = {token: index for index, token in enumerate(tokens)}
        model = models.BPE(vocab=vocab, merges=merges, fuse_unk=False, ignore_merges=split.whole)
    except Exception as error:  # the library raises plain Exceptions
        raise DataError(
            f"damaged: its tokenizer can't be built ({error!r})", source=str(file.path)
        ) from error
    tokenizer = Tokenizer(model)
    _cut(tokenizer, split)
    tokenizer.decoder = decoders.ByteLevel()
    for wanted in (_CONTROL, _USER_DEFINED):
        added = [token for token, kind in zip(tokens, types, strict=True) if kind == wanted]
        special = wanted == _CONTROL
        wrapped = [AddedToken(token, special=special, normalized=False) for token in added]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(wrapped)
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    left, right = merge.split(" ", 1)
    return left, right


def _cut(tokenizer: Tokenizer, split: _Split) -> None:
    from tokenizers import Regex, normalizers, pre_tokenizers

    steps: list[Any] = []
    if split.compose:
        tokenizer.normalizer = normalizers.NFC()
    if split.digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if split.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(split.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split.pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)


def special_names(file: GgufFile) -> dict[str, str]:
    """`bos_token`, `eos_token`, `pad_token` and `unk_token` as text, those that the file names.

    Raises:
        DataError: it names a token that it hasn't.
    """
    meta = file.metadata
    tokens = meta["tokenizer.ggml.tokens"]
    ids = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    found: dict[str, str] = {}
    for long, short in ids.items():
        key = f"tokenizer.ggml.{long}_token_id"
        if key not in meta:
            continue
        if not isinstance(meta[key], int) or not 0 <= meta[key] < len(tokens):
            raise DataError(
                f"damaged: metadata {key} is {meta[key]!r}, and it has {len(tokens)} tokens",
                source=str(file.path),
            )
        found[f"{short}_token"] = tokens[meta[key]]
    return found


def write_tokenizer(file: GgufFile, folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` into ``folder``."""
    import json

    tokenizer_from_gguf(file).save(str(folder / "tokenizer.json"))
    text = json.dumps(special_names(file), ensure_ascii=False, indent=2)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
    template = file.metadata.get(CHAT_TEMPLATE)
    if template:
        if not isinstance(template, str):
            raise DataError(
                "damaged: metadata tokenizer.chat_template is not a string", source=str(file.path)
            )
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8", newline="")
