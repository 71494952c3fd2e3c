"""Files to tar streams and back, for crossing the border of a sandbox. Files from inside aren't trusted."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

__all__ = ["TooLargeError", "pack", "unpack"]


class TooLargeError(Exception):
    """A stream holds more than may be written."""


def pack(source: Path, stream: IO[bytes], name: str) -> None:
    """Write a file under `name`, or all that a folder holds."""
    with tarfile.open(fileobj=stream, mode="w", dereference=False) as archive:
        archive.add(source, arcname="." if source.is_dir() else name)


def unpack(stream: IO[bytes], target: Path, name: str, *, most: int) -> None:
    """Write what a stream holds: a lone file called `name` to `target`, anything else into the folder `target`.

    Devices, and links that lead out of it, are left out.

    Raises:
        TooLargeError: the files have more than `most` bytes together, holes included.
    """
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        if sum(member.size for member in archive if member.isfile()) > most:
            raise TooLargeError
    stream.seek(0)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        first = archive.next()
        if first is not None and first.name == name and first.isfile():
            target.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(first)
            assert content is not None
            with target.open("wb") as file:
                shutil.copyfileobj(content, file)
            return
        target.mkdir(parents=True, exist_ok=True)
        for member in _members(first, archive):
            _extract(archive, member, target)


def _members(first: tarfile.TarInfo | None, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    member = first
    while member is not None:
        yield member
        member = archive.next()


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.isdev():
        return
    try:
        archive.extract(member, target, filter="data")
    except tarfile.FilterError:
        return
