"""Content hashes: of values, of files, of the source of functions and classes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from evsys.errors import DataError
from evsys_runtime.record.encoding import encode, utf8
from evsys_runtime.record.files import storing

__all__ = ["canonical_json", "digest", "digest_bytes", "file_digest", "source_hash"]


def canonical_json(obj: Any) -> bytes:
    """The one JSON text of a value: keys sorted, no spaces, UTF-8, shortest decimal of each float.

    Takes what a record takes: attrs classes and dataclasses (all fields), mappings, sequences, sets, enums, paths,
    dates, numpy scalars and arrays.

    Raises:
        DataError: a number isn't finite, keys of different types stand side by side, or a value has no JSON form.
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
    with storing(path, "read"), path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def source_hash(obj: Any) -> str:
    """Hash of what a function or class does, as far as its source tells; instances count as their class.

    In it are its source, everything of its own top-level package that this source names, directly or through others
    (functions, classes, constants, decorators), and the plain values that a closure or `functools.partial` holds.
    Code of other packages isn't: it is the business of the versions in the record.

    Where there is no source (a lambda, the interactive prompt, `exec`) it is the byte code with the Python version, so
    it changes with Python. What is compiled counts as its name and the version of its distribution.
    """
    from evsys_runtime.record.sources import source_parts

    return digest(sorted(set(source_parts(obj))))
