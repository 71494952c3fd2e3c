"""Names that any file system takes: what people write becomes a folder's name."""

from __future__ import annotations

import hashlib
import re
import unicodedata

__all__ = ["MAX_LENGTH", "slug"]

MAX_LENGTH = 64
"""Longest slug: a record nests five folders, and some systems allow 260 characters for the whole path."""

_RESERVED = re.compile(r"(con|prn|aux|nul|conin|conout|com\d|lpt\d)(\..*)?")
_OTHER = re.compile(r"[^a-z0-9._]+")


def slug(text: str, *, max_length: int = MAX_LENGTH) -> str:
    """A portable name: lower-case letters, digits, `.`, `_`, `-`; never a name that Windows reserves.

    Accents are dropped, everything else that isn't allowed becomes `-`. A text of which nothing is left, and one that
    is too long, gets a part of its hash, so that different texts stay different. `slug(slug(x)) == slug(x)`.

    Args:
        text: any text.
        max_length: the most characters, at least 16.
    """
    decomposed = unicodedata.normalize("NFKD", text)
    plain = "".join(char for char in decomposed if not unicodedata.combining(char)).casefold()
    name = _OTHER.sub("-", plain).strip("-.")
    if not name:
        return f"unnamed-{_mark(text)}"
    if _RESERVED.fullmatch(name):
        name = f"_{name}"
    if len(name) > max_length:
        name = f"{name[: max_length - 9].rstrip('-.')}-{_mark(text)}"
    return name


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
