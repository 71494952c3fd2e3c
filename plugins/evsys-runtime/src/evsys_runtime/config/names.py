"""Names that are folder names on every system."""

from __future__ import annotations

import hashlib
import re

from evsys_record.slugs import latin

__all__ = ["MAX_LENGTH", "slug"]

MAX_LENGTH = 80
_RESERVED = {"con", "prn", "aux", "nul", *(f"{device}{n}" for device in ("com", "lpt") for n in range(10))}


def slug(text: str, *, max_length: int = MAX_LENGTH) -> str:
    """Lower case `a-z 0-9 . _ -`, never empty, never reserved, the same for the same text.

    Text in another script, or longer than `max_length`, ends with a short hash of the whole, so that two names
    don't fall together.
    """
    plain, same = latin(text)
    name = re.sub(r"-{2,}", "-", re.sub(r"[^a-z0-9._-]+", "-", plain.replace("+", ""))).strip("-._")
    if not same or not name or len(name) > max_length:
        mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"{name[: max_length - 9].rstrip('-._')}-{mark}".lstrip("-")
    if name.partition(".")[0] in _RESERVED:
        name = f"x-{name}"
    return name
