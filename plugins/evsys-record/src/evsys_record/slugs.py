"""Names that any file system takes: what people write becomes a folder's name."""

from __future__ import annotations

import hashlib
import re
import unicodedata

__all__ = ["MAX_LENGTH", "latin", "slug"]

MAX_LENGTH = 64
"""Longest slug: a record nests five folders, and some systems allow 260 characters for the whole path."""

_RESERVED = re.compile(r"(con|prn|aux|nul|conin|conout|com\d|lpt\d)(\..*)?")
_OTHER = re.compile(r"[^a-z0-9._]+")


def slug(text: str, *, max_length: int = MAX_LENGTH) -> str:
    """A portable name: lower-case letters, digits, `.`, `_`, `-`; never a name that Windows reserves.

    Letters become Latin, everything else that isn't allowed becomes `-`. A text in another script, one of which nothing is
    left, and one that is too long get a part of its hash, so that different texts stay different.
    `slug(slug(x)) == slug(x)`.

    Args:
        text: any text.
        max_length: the most characters, at least 16.
    """
    plain, same = latin(text)
    name = _OTHER.sub("-", plain).strip("-.")
    if not name:
        return f"unnamed-{_mark(text)}"
    if _RESERVED.fullmatch(name):
        name = f"_{name}"
    if not same or len(name) > max_length:
        name = f"{name[: max_length - 9].rstrip('-.')}-{_mark(text)}"
    return name


def latin(text: str) -> tuple[str, bool]:
    """A text in lower case with its letters in ASCII, and whether they are Latin already but for accents.

    Letters of other scripts are written as they are pronounced, in which different texts may agree: `实验` and `试验` are both `shiyan`.
    """
    composed = unicodedata.normalize("NFKC", text).casefold()
    if composed.isascii():
        return composed, True
    from anyascii import anyascii

    pieces, same = [], True
    for char in composed:
        if char.isascii() or not (char.isalnum() or unicodedata.category(char).startswith("M")):
            pieces.append(char)
        else:
            pieces.append(anyascii(char).lower())
            same = same and (not char.isalnum() or unicodedata.name(char, "").startswith("LATIN"))
    return "".join(pieces), same


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
