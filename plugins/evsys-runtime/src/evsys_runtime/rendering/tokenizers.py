"""Tokenizers: bytes for `evsys/tiny`, and any `tokenizer.json` through the `tokenizers` library."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evsys.errors import DataError
from evsys.optional import declared
from evsys_runtime.rendering.cache import TINY, find_model
from evsys_runtime.rendering.control_tokens import ControlTexts, Spans

if TYPE_CHECKING:
    import tokenizers

    from evsys.protocols import Tokenizer

__all__ = ["ByteTokenizer", "TokenizersTokenizer", "load_tokenizer", "special_tokens_of"]

# Ends of a turn or of a text in the model families that the field uses, by the text of the special token.
_KNOWN_ENDS = (
    "<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<end_of_turn>", "<eos>",
    "<|return|>", "<｜end▁of▁sentence｜>",
)  # fmt: skip

# Ends a turn in some families, a part of one in others: an end only where nothing is declared.
_AMBIGUOUS_ENDS = ("<|end|>",)

_NAMED = ("bos_token", "eos_token", "pad_token", "unk_token")


class ByteTokenizer:
    """The UTF-8 bytes of a text, ids 0 to 255, and three special tokens: `<|im_start|>`, `<|im_end|>`, `<|endoftext|>`."""

    special_ids: Mapping[str, int] = {"<|im_start|>": 256, "<|im_end|>": 257, "<|endoftext|>": 258}
    control_tokens = special_ids
    vocab_size = 259
    eos_token_ids = (257, 258)
    special_tokens: Mapping[str, str] = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    fingerprint = "bytes-259"

    _controls = ControlTexts(special_ids)
    _texts: Mapping[int, bytes] = {index: text.encode() for text, index in special_ids.items()}

    def encode(self, text: str, plain: Spans = ()) -> list[int]:
        """Token ids of `text`; special tokens written in it become their ids.

        Args:
            text: the text.
            plain: spans of it in which special tokens are text.

        Raises:
            DataError: `text` holds half a surrogate pair, which no UTF-8 can carry.
        """
        ids: list[int] = []
        end = 0
        for start, stop in (*plain, (len(text), len(text))):
            template, place = text[end:start], 0
            for match in self._controls.occurrences(template):
                ids.extend(_utf8(template[place : match.start()]))
                ids.append(self.special_ids[match.group()])
                place = match.end()
            ids.extend(_utf8(template[place:]))
            ids.extend(_utf8(text[start:stop]))
            end = stop
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of whole sequences; bytes that are not UTF-8 become U+FFFD, special tokens are kept.

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
            f"text holds half a surrogate pair (U+{ord(text[exc.start]):04X}), which is not a valid character",
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
        """Read `tokenizer.json`, and what names the end tokens in the JSON files alongside it.

        Raises:
            DataError: there is no readable tokenizer, or the token that ends a turn is unknown.
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
                "the token that ends a turn is unknown",
                source=str(folder),
                hint='put {"eos_token": "..."} into tokenizer_config.json next to tokenizer.json',
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

    @cached_property
    def control_tokens(self) -> Mapping[str, int]:
        """Texts and ids of the added tokens that only a template may write: those that are special, that have a name such as
        `bos_token`, that end a turn, or that are written `<|...|>`. Tags such as `<think>` are seldom special.
        """
        named = set(self.special_tokens.values())
        return {
            token.content: index
            for index, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
            or token.content in named
            or index in self._eos
            or (token.content.startswith("<|") and token.content.endswith("|>"))
        }

    def encode(self, text: str, plain: Spans = ()) -> list[int]:
        """Token ids of `text`, nothing added around it; special tokens written in it become their ids.

        Args:
            text: the text.
            plain: spans of it in which control tokens are text.

        Raises:
            DataError: `text` holds half a surrogate pair.
        """
        tokenizer = self._tokenizer
        if plain:
            tokenizer, controls, aliases = self._aliased
            text = controls.replace(text, plain, aliases)
        try:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):
            _utf8(text)
            raise
        return ids

    @cached_property
    def _aliased(self) -> tuple[tokenizers.Tokenizer, ControlTexts, Mapping[str, str]]:
        """The tokenizer with its control tokens under random names, which finds no control token in any other text."""
        nonce = secrets.token_hex(16)
        aliases = {text: f"<|{nonce}:{index}|>" for text, index in self.control_tokens.items()}
        return _renamed(self._tokenizer, aliases), ControlTexts(self.control_tokens), aliases

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
    named = declared(tokenizer, "special_tokens")
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


def _renamed(tokenizer: tokenizers.Tokenizer, names: Mapping[str, str]) -> tokenizers.Tokenizer:
    """A copy of a tokenizer in which some added tokens have other texts and the same ids.

    The vocabulary gets the new texts as well: some models would find a piece such as `</s>` there.
    """
    import tokenizers

    document = json.loads(tokenizer.to_str())
    document["post_processor"] = None  # adds tokens around a text, which nothing here asks for
    for token in document["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    model = document["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(text, text): index for text, index in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(text, text), score] for text, score in model["vocab"]]
    if "merges" in model:
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        model["merges"] = [pair for pair in pairs if "".join(pair) not in names]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    copy = tokenizers.Tokenizer.from_str(json.dumps(document))
    before = tokenizer.get_added_tokens_decoder()
    after = copy.get_added_tokens_decoder()
    if any(after[i].content != names.get(token.content, token.content) for i, token in before.items()):
        raise DataError("the tokenizer's control tokens can't be distinguished from equal text in the data")
    return copy


def _end_ids(tokenizer: tokenizers.Tokenizer, folder: Path, named: Mapping[str, str]) -> tuple[int, ...]:
    """The declared end tokens first, then those of known families that are special tokens here.

    Folders often declare one of two: the end of a turn, or the end of a text, which a model may write all the same.
    """
    declared = _json_object(folder / "generation_config.json").get("eos_token_id", [])
    ids = [
        index for index in ([declared] if isinstance(declared, int) else declared) if isinstance(index, int)
    ]
    if (eos := named.get("eos_token")) is not None and (index := tokenizer.token_to_id(eos)) is not None:
        ids.insert(0, index)
    added = {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items()}
    known = _KNOWN_ENDS if ids else (*_KNOWN_ENDS, *_AMBIGUOUS_ENDS)
    ids.extend(added[text] for text in known if text in added)
    return tuple(dict.fromkeys(ids))
