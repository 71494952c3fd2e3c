"""Pieces of the files of a record, and batches of them as they travel."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Sequence

import attrs

from evsys.errors import ConfigError
from evsys_record.retraction import RETRACTIONS

__all__ = [
    "EXPERIMENT_NAME",
    "MOST_LISTED",
    "MOST_PIECES",
    "MOST_UNPACKED",
    "Held",
    "Piece",
    "digest_of",
    "is_lines",
    "is_summarised",
    "pack",
    "refuse_odd_names",
    "refuse_odd_project",
    "unpack",
]

MOST_UNPACKED = 64 << 20
"""Bytes of a batch, decompressed."""

MOST_PIECES = 20_000
"""Pieces of a batch."""

MOST_LISTED = 8 << 20
"""Bytes of the list of a batch's pieces, which holds up all requests while it is read."""

EXPERIMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_PART = re.compile(r"(?!\.)[^/\\:\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_LONGEST_PART = 200
"""Bytes of a name of a file or folder; file systems take 255, of which a temporary name needs some."""

_DEEPEST = 8


@attrs.frozen(kw_only=True)
class Piece:
    """Bytes of a file. Files of lines grow, any other file is replaced as a whole, by one piece.

    Attributes:
        file: path from the experiment's folder.
        place: of the first byte, in the file.
        data: the bytes.
        restart: forget what is held of the file before.
        gone: the file, which isn't one of lines, was removed or renamed.
    """

    file: str
    place: int = 0
    data: bytes = b""
    restart: bool = False
    gone: bool = False


@attrs.frozen(kw_only=True)
class Held:
    """How much of a file the store has: its first `size` bytes, and their digest (CRC-32 of lines, SHA-256 of any other file)."""

    file: str
    size: int
    digest: str


def is_lines(file: str) -> bool:
    """True for a file that only ever grows."""
    return file.endswith(".jsonl")


def is_summarised(file: str) -> bool:
    """True for a file that the summaries of experiments and runs are made from; they need no other line than a retraction."""
    return not is_lines(file) or file == RETRACTIONS


def digest_of(file: str, data: bytes, before: str = "") -> str:
    """The digest of a file. For a file of lines `before` is its digest so far; for any other file `data` is everything."""
    if is_lines(file):
        return f"{zlib.crc32(data, int(before or '0', 16)):08x}"
    return hashlib.sha256(data).hexdigest()


def refuse_odd_names(experiment: str, pieces: Iterable[Piece]) -> None:
    """Refuse names that could lead out of a folder, or hide in one.

    Raises:
        ConfigError: there is one.
    """
    if not EXPERIMENT_NAME.fullmatch(experiment):
        raise ConfigError(f"invalid experiment name {experiment!r}", hint="use the name of its folder")
    for piece in pieces:
        parts = piece.file.split("/")
        if len(parts) > _DEEPEST or not all(map(_is_name, parts)):
            raise ConfigError(f"invalid path {piece.file!r} of a file in a record")
        if piece.place < 0 or (piece.place and not is_lines(piece.file)):
            raise ConfigError(f"invalid place {piece.place} in {piece.file}")


def refuse_odd_project(name: str) -> None:
    """Refuse a project whose name can't be that of one folder.

    Raises:
        ConfigError: it can't.
    """
    if name == "-" or not _is_name(name):  # `-` stands for all projects
        raise ConfigError(
            f"invalid project name {name!r}",
            hint=f"at most {_LONGEST_PART} bytes, without `/`, `\\`, `:` and control characters, not `-`, and not beginning with `.`",
        )


def _is_name(part: str) -> bool:
    return _PART.fullmatch(part) is not None and len(part.encode()) <= _LONGEST_PART


def pack(pieces: Sequence[Piece]) -> bytes:
    """A batch as it travels: a line of JSON that lists the pieces, then their bytes, compressed together."""
    head = [
        {
            "file": piece.file,
            "place": piece.place,
            "bytes": len(piece.data),
            "restart": piece.restart,
            "gone": piece.gone,
        }
        for piece in pieces
    ]
    return zlib.compress(b"".join([json.dumps(head).encode(), b"\n", *(piece.data for piece in pieces)]), 3)


def unpack(body: bytes) -> list[Piece]:
    """The pieces of a batch.

    Raises:
        ConfigError: it isn't one, or unpacks to more than `MOST_UNPACKED` bytes.
    """
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(body, MOST_UNPACKED + 1)
    except zlib.error as exc:
        raise ConfigError(f"the batch isn't compressed with zlib: {exc}") from exc
    if len(data) > MOST_UNPACKED:
        raise ConfigError(
            f"the batch unpacks to more than {MOST_UNPACKED} bytes", hint="send smaller batches"
        )
    if not unpacking.eof:
        raise ConfigError("the batch is cut off")
    head, _, rest = data.partition(b"\n")
    if len(head) > MOST_LISTED:
        raise ConfigError(f"the list of the batch's pieces has more than {MOST_LISTED} bytes")
    try:
        listed = json.loads(head)
        if len(listed) > MOST_PIECES:
            raise ValueError(f"it lists {len(listed)}, and at most {MOST_PIECES} are taken")
        pieces, start = [], 0
        for each in listed:
            end = start + int(each["bytes"])
            if end < start:
                raise ValueError("a piece has fewer than 0 bytes")
            pieces.append(
                Piece(
                    file=str(each["file"]),
                    place=int(each["place"]),
                    data=rest[start:end],
                    restart=bool(each.get("restart", False)),
                    gone=bool(each.get("gone", False)),
                )
            )
            start = end
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as exc:
        raise ConfigError(f"the batch doesn't begin with a list of its pieces: {exc}") from exc
    if start != len(rest):
        raise ConfigError(f"the pieces of the batch have {start} bytes, and it holds {len(rest)}")
    return pieces
