"""Tokenizers: bytes for `evsys/tiny`, and any `tokenizer.json` through the `tokenizers` library."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evsys.errors import DataError
from evsys_runtime.rendering.cache import TINY, find_model

if TYPE_CHECKING:
    import tokenizers

    from evsys.protocols import Tokenizer

__all__ = ["ByteTokenizer", "TokenizersTokenizer", "load_tokenizer", "special_tokens_of"]

# Ends of a turn or of a text in the model families that the field uses, by the text of the special token.
_KNOWN_ENDS = (
    "<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<end_of_turn>", "<eos>",
    "<|end|>", "<|return|>", "<｜end▁of▁sentence｜>",
)  # fmt: skip

_NAMED = ("bos_token", "eos_token", "pad_token", "unk_token")


class ByteTokenizer:
    """The UTF-8 bytes of a text, ids 0 to 255, and three special tokens: `<|im_start|>`, `<|im_end|>`, `<|endoftext|>`."""

    special_ids: Mapping[str, int] = {"<|im_start|>": 256, "<|im_end|>": 257, "<|endoftext|>": 258}
    vocab_size = 259
    eos_token_ids = (257, 258)
    special_tokens: Mapping[str, str] = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    fingerprint = "bytes-259"

    _split = re.compile("(" + "|".join(re.escape(text) for text in special_ids) + ")")
    _texts: Mapping[int, bytes] = {index: text.encode() for text, index in special_ids.items()}

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; special tokens written in it become their ids.

        Raises:
            DataError: `text` holds half a surrogate pair, which no UTF-8 can carry.
        """
        ids: list[int] = []
        for part in self._split.split(text):
            special = self.special_ids.get(part)
            if special is None:
                ids.extend(_utf8(part))
            else:
                ids.append(special)
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of whole sequences; bytes that are no UTF-8 become U+FFFD, special tokens are kept.

        Raises:
            ValueError: an id outside 0 to 258.
        """
        try:
            return bytes(map(int, tokens)).decode("utf-8", "replace")
        except ValueError:
            pass
        parts: list[str] = []
        run = bytearray()
        for token in tokens:
            if 0 <= token < 256:
                run.append(token)
                continue
            if token not in self._texts:
                raise ValueError(
                    f"token id {token} is outside the byte vocabulary (0 to {self.vocab_size - 1})"
                )
            parts.extend((run.decode("utf-8", "replace"), self._texts[token].decode()))
            run.clear()
        return "".join([*parts, run.decode("utf-8", "replace")])


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise DataError(
            f"text holds half a surrogate pair (U+{ord(text[exc.start]):04X}), which is no valid character",
            hint="repair the text where it was cut, for example text.encode('utf-16', 'surrogatepass').decode('utf-16')",
        ) from exc


class TokenizersTokenizer:
    """A tokenizer of the `tokenizers` library, as stored in a `tokenizer.json`.

    Args:
        tokenizer: the library's object; its truncation and padding are switched off.
        eos_token_ids: ids that end a turn.
        special_tokens: `bos_token`, `eos_token`, ... for chat templates, as text.
        fingerprint: hash of the file it came from.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        eos_token_ids: Sequence[int],
        special_tokens: Mapping[str, str] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._eos = tuple(eos_token_ids)
        self.special_tokens: Mapping[str, str] = dict(special_tokens or {})
        self.fingerprint = fingerprint or _digest(tokenizer.to_str().encode())

    @classmethod
    def from_folder(cls, folder: Path) -> TokenizersTokenizer:
        """Read `tokenizer.json`, and what names the end tokens in the JSON files beside it.

        Raises:
            DataError: there is no readable tokenizer, or nothing says which token ends a turn.
        """
        import tokenizers

        path = folder / "tokenizer.json"
        try:
            raw = path.read_bytes()
        except OSError as exc:
            what = (
                "there is no tokenizer"
                if not path.exists()
                else f"cannot read the tokenizer ({exc.strerror})"
            )
            raise DataError(what, source=str(path), hint="copy the model's tokenizer.json there") from exc
        try:
            tokenizer = tokenizers.Tokenizer.from_buffer(raw)
        except Exception as exc:  # the library raises plain Exceptions
            raise DataError(f"not a tokenizer of the tokenizers library ({exc})", source=str(path)) from exc
        named = _named_tokens(folder)
        ends = _end_ids(tokenizer, folder, named)
        if not ends:
            raise DataError(
                "nothing says which token ends a turn",
                source=str(folder),
                hint='put {"eos_token": "..."} into tokenizer_config.json beside tokenizer.json',
            )
        return cls(tokenizer, eos_token_ids=ends, special_tokens=named, fingerprint=_digest(raw))

    @property
    def vocab_size(self) -> int:
        """Number of token ids, added tokens included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a turn."""
        return self._eos

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, nothing added around it; special tokens written in it become their ids.

        Raises:
            DataError: `text` holds half a surrogate pair.
        """
        try:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):
            _utf8(text)
            raise
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of whole sequences; special tokens are kept."""
        return str(self._tokenizer.decode([int(token) for token in tokens], skip_special_tokens=False))


def load_tokenizer(name_or_folder: str | Path) -> Tokenizer:
    """The tokenizer of a model: `evsys/tiny`, a name in the model cache, or a folder with a `tokenizer.json`.

    Raises:
        ConfigError: no such model.
        DataError: its tokenizer can't be read.
    """
    if name_or_folder == TINY:
        return ByteTokenizer()
    return TokenizersTokenizer.from_folder(find_model(name_or_folder).folder)


def special_tokens_of(tokenizer: Tokenizer) -> Mapping[str, str]:
    """The tokenizer's named special tokens as text; a tokenizer needs to offer none."""
    named = getattr(tokenizer, "special_tokens", {})
    return named if isinstance(named, Mapping) else {}


def _digest(raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def _json_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as exc:
        raise DataError(f"not a JSON object ({exc})", source=str(path)) from exc
    if not isinstance(value, dict):
        raise DataError("not a JSON object", source=str(path))
    return value


def _named_tokens(folder: Path) -> dict[str, str]:
    """`bos_token` and its like; later files win. Each is a text, or an object with its text as `content`."""
    named = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        values = _json_object(folder / file)
        for name in _NAMED:
            value = values.get(name)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                named[name] = text
    return named


def _end_ids(tokenizer: tokenizers.Tokenizer, folder: Path, named: Mapping[str, str]) -> tuple[int, ...]:
    """The declared end tokens first, then those of known families that are special tokens here."""
    declared = _json_object(folder / "generation_config.json").get("eos_token_id", [])
    ids = [
        index for index in ([declared] if isinstance(declared, int) else declared) if isinstance(index, int)
    ]
    if (eos := named.get("eos_token")) is not None and (index := tokenizer.token_to_id(eos)) is not None:
        ids.insert(0, index)
    if not ids:
        special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        ids = [
            index
            for text in _KNOWN_ENDS
            if text in special and (index := tokenizer.token_to_id(text)) is not None
        ]
    return tuple(dict.fromkeys(ids))
