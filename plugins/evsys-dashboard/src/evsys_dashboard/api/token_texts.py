"""The text of sampled tokens, from the tokenizer of a model that this machine has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evsys.errors import EvsysError
from evsys_runtime import load_tokenizer

if TYPE_CHECKING:
    from evsys.protocols import Tokenizer

__all__ = ["token_texts"]


def token_texts(model: str | None, turns: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...] | None, ...]:
    """The text of each sampled token, a tuple a turn; None for a turn without tokens, or if the tokenizer isn't here.

    A model that is named by a path gets none: the path is another machine's, and a record from elsewhere could name any file.
    """
    tokenizer = None if model is None or _is_path(model) else _tokenizer(model)
    return tuple(None if tokenizer is None else _texts(tokenizer, turn.get("tokens")) for turn in turns)


def _is_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or "\\" in model or Path(model).exists()


@lru_cache(maxsize=8)
def _tokenizer(model: str) -> Tokenizer | None:
    try:
        return load_tokenizer(model)
    except EvsysError:
        return None


def _texts(tokenizer: Tokenizer, tokens: object) -> tuple[str, ...] | None:
    if not isinstance(tokens, list) or not tokens:
        return None
    try:
        return tuple(tokenizer.decode([token]) for token in tokens)
    except (EvsysError, ValueError, TypeError, KeyError, IndexError, OverflowError):
        return None  # the record is another model's, or was edited
