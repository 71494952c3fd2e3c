"""MinHash signatures of tasks by their words: slight rewordings hardly change them."""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Sequence, Set
from itertools import pairwise

from evsys_record.signatures import MINIMA, SIGNATURES
from evsys_runtime.data.words import WORD

__all__ = ["signatures_of"]

_TOKEN = re.compile(rf"{WORD.pattern}|[^\w\s.,;:!?\"'`*_…]")
"""A word, or a symbol that isn't punctuation: `12 + 35` and `12 - 35` differ."""

_COMMON = 20
"""A token of more than one in so many tasks belongs to their template."""

_MOST_TOKENS = 2000
"""Tokens of a task that count, so that long documents cost no more than a moment."""

_BYTES = 4
_WHOLE_NUMBERS = struct.Struct(f">{MINIMA}I")


def signatures_of(texts: Sequence[str]) -> tuple[str, ...]:
    """The signatures of tasks, in the order of their ranks, at most `SIGNATURES`.

    The features of a task are the tokens that few tasks have, and each two that follow each other with the template
    between them. So neither a changed template nor a changed word makes another task, and tasks of one template differ.
    A task without such tokens has those that less than half of the tasks have, in twos.

    Args:
        texts: the folded text of each task.
    """
    tokens = [_TOKEN.findall(text)[:_MOST_TOKENS] for text in texts]
    tasks_with = Counter(token for each in tokens for token in set(each))
    ranks = {token: _rank_of(token) for token, tasks in tasks_with.items() if tasks * 2 < len(texts)}
    rare = {token for token, tasks in tasks_with.items() if tasks <= max(1, len(texts) // _COMMON)}
    # The rank follows from the tokens alone, so that only the features of the sample are hashed.
    ranked = sorted(
        (min((ranks[token] for token in each if token in ranks), default=_rank_of(text)), each, text)
        for each, text in zip(tokens, texts, strict=True)
    )
    return tuple(
        rank + _minima(_features(each, rare) or _pairs(each, ranks.keys()) or {text})
        for rank, each, text in ranked[:SIGNATURES]
    )


def _features(tokens: Sequence[str], rare: Set[str]) -> set[str]:
    return {token for token in tokens if token in rare} | _pairs(tokens, rare)


def _pairs(tokens: Sequence[str], kept: Set[str]) -> set[str]:
    """Each two of the kept tokens that follow each other, with what is between them."""
    places = [place for place, token in enumerate(tokens) if token in kept]
    return {" ".join(tokens[one : other + 1]) for one, other in pairwise(places)}


def _minima(features: set[str]) -> str:
    """The lowest byte of the minimum of each hash function; one digest gives them all."""
    hashes = map(_WHOLE_NUMBERS.unpack, map(_hash, features))
    return "".join(f"{min(values) & 0xFF:02x}" for values in zip(*hashes, strict=True))


def _rank_of(text: str) -> str:
    return _hash(text)[:_BYTES].hex()


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES * MINIMA).digest()
