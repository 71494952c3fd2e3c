"""Content hashes: of values, of bytes, of files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from evsys.errors import DataError
from evsys_record.encoding import encode, utf8
from evsys_record.files import open_to_read, storing

__all__ = ["canonical_json", "digest", "digest_bytes", "file_digest"]


def canonical_json(obj: Any) -> bytes:
    """The one JSON text of a value: keys sorted, no spaces, UTF-8, shortest decimal of each float.

    Takes what a record takes: attrs classes and dataclasses (all fields), mappings, sequences, sets, enums, paths,
    dates, numpy scalars and arrays.

    Raises:
        DataError: a number isn't finite, a mapping has keys of different types, or a value has no JSON form.
    """
    try:
        return utf8(encode(obj))
    except (TypeError, ValueError, RecursionError) as exc:
        raise DataError(f"no canonical JSON: {exc}", hint="use finite numbers and plain values") from exc


def digest(obj: Any) -> str:
    """`sha256:` and the hash of the canonical JSON."""
    return digest_bytes(canonical_json(obj))


def digest_bytes(content: bytes) -> str:
    """`sha256:` and the hash of some bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def file_digest(path: Path) -> str:
    """`sha256:` and the hash of a file's bytes, read in blocks.

    Raises:
        StoreError: the file can't be read.
    """
    with open_to_read(path) as stream, storing(path, "read"):
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
