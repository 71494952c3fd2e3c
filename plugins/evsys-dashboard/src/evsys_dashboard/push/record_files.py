"""The files of a record to send, and where each of them has grown."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from evsys.errors import StoreError
from evsys_dashboard.ingest.pieces import MOST_PIECES, Held, Piece, digest_of, is_lines
from evsys_record.files import FORMAT, open_to_read, storing
from evsys_record.show import LEFT_OUT

__all__ = ["LARGEST_WHOLE", "RecordFiles"]

LARGEST_WHOLE = 16 << 20
"""Most bytes of a file sent as a whole; larger ones stay where they are."""

_LEFT_OUT = frozenset({"checkpoints", "data"})
"""Folders of a run that stay here: weights, and the rows that it trained on."""

_FIRST = ("experiment.json", "config.yaml", "resolved.json", "events.jsonl")
_BLOCK = 1 << 20


@attrs.define
class _Sent:
    """How much of a file the other side has, and the file as it was then."""

    size: int = 0
    digest: str = ""
    mark: tuple[int, int, int] | None = None
    compared: bool = False


class RecordFiles:
    """The files of one experiment, and what of each the other side has.

    Args:
        directory: the experiment's folder.

    Attributes:
        too_large: files that stay here for their size.
        linked: files that stay here since they are links out of the record, such as an agent or another's record may have.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._sent: dict[str, _Sent] = {}
        self._listed = False
        self.too_large: set[str] = set()
        self.linked: set[str] = set()

    def note(self, held: Iterable[Held]) -> None:
        """The other side has this much, regardless of earlier assumptions."""
        for each in held:
            sent = self._sent.setdefault(each.file, _Sent())
            if (sent.size, sent.digest) != (each.size, each.digest):
                sent.size, sent.digest, sent.mark, sent.compared = each.size, each.digest, None, False

    def missing(self) -> int:
        """Bytes that the other side lacks, as far as that is known.

        Raises:
            StoreError: a folder can't be listed.
        """
        total = 0
        for name, path in self._files():
            sent = self._sent.get(name, _Sent())
            size = path.stat().st_size
            if is_lines(name):
                total += max(0, size - sent.size)
            elif sent.mark is None:
                total += size
        return total

    def forget(self) -> None:
        """The other side may have anything."""
        self._sent.clear()
        self._listed = False

    def pieces(self, most: int) -> Iterator[Piece]:
        """Pieces that the other side lacks, up to about `most` bytes; nothing once it has all.

        Raises:
            StoreError: a file can't be read.
        """
        left, number = most, 0
        found = dict(self._files())
        for name, sent in self._sent.items():
            if sent.digest and name not in found and not is_lines(name) and name != LEFT_OUT:
                if number == MOST_PIECES:
                    return
                sent.size, sent.digest, sent.mark = 0, "", None
                number += 1
                yield Piece(file=name, gone=True)
        for name, path in found.items():
            if left <= 0 or number == MOST_PIECES:
                return
            piece = self._lines(name, path, left) if is_lines(name) else self._whole(name, path)
            if piece is not None:
                left -= len(piece.data) + len(json.dumps(name))
                number += 1
                self._listed &= name != _FIRST[0]
                yield piece
        if not self._listed and LEFT_OUT not in found:
            self._listed = True
            data = json.dumps({"format": FORMAT, "bytes": self._sizes_left_out()}).encode()
            sent = self._sent.setdefault(LEFT_OUT, _Sent())
            digest = digest_of(LEFT_OUT, data)
            if digest != sent.digest:
                sent.size, sent.digest = len(data), digest
                yield Piece(file=LEFT_OUT, data=data)

    def _sizes_left_out(self) -> dict[str, int]:
        """The bytes of each file and folder that stays here."""
        folders = (
            path
            for name in sorted(_LEFT_OUT)
            for path in self.directory.glob(f"runs/*/{name}")
            if path.is_dir() and not path.is_symlink()
        )
        with storing(self.directory, "list"):
            sizes = {
                f"{path.relative_to(self.directory).as_posix()}/": sum(
                    (where / file).lstat().st_size for where, _, files in path.walk() for file in files
                )
                for path in folders
            }
            for file in self.too_large | self.linked:
                sizes[file] = (self.directory / file).lstat().st_size
        return sizes

    def _files(self) -> Iterator[tuple[str, Path]]:
        first = [name for name in _FIRST if (self.directory / name).is_file()]
        rest = (name for name in sorted(self._below("")) if name not in _FIRST)
        for name in (*first, *rest):
            path = self.directory / name
            if path.is_symlink() and not path.resolve().is_relative_to(self.directory.resolve()):
                self.linked.add(name)
            else:
                yield name, path

    def _below(self, folder: str) -> Iterator[str]:
        try:
            with storing(self.directory / folder, "list"), os.scandir(self.directory / folder) as entries:
                found = [
                    (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file()) for entry in entries
                ]
        except StoreError:
            if (self.directory / folder).exists():
                raise
            return  # set aside meanwhile
        of_run = folder.startswith("runs/") and folder.count("/") == 2
        for name, is_folder, is_file in found:
            if name.startswith("."):
                continue
            if is_folder:
                if not (of_run and name in _LEFT_OUT):
                    yield from self._below(f"{folder}{name}/")
            elif is_file:
                yield folder + name

    def _lines(self, name: str, path: Path, most: int) -> Piece | None:
        sent = self._sent.setdefault(name, _Sent())
        size = path.stat().st_size
        if size == sent.size and sent.compared:
            return None
        restart = False
        if not sent.compared:
            restart = size < sent.size or (sent.size > 0 and _crc_of(path, sent.size) != sent.digest)
        elif size < sent.size:
            restart = True
        if restart:
            sent.size, sent.digest = 0, ""
        sent.compared = True
        with open_to_read(path) as stream, storing(path, "read"):
            stream.seek(sent.size)
            data = stream.read(max(most, 1))
        if not data and not restart:
            return None
        place = sent.size
        sent.size, sent.digest = place + len(data), digest_of(name, data, sent.digest)
        return Piece(file=name, place=place, data=data, restart=restart)

    def _whole(self, name: str, path: Path) -> Piece | None:
        sent = self._sent.setdefault(name, _Sent())
        with open_to_read(path) as stream, storing(path, "read"):
            facts = os.fstat(stream.fileno())
            mark = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            if mark == sent.mark:
                return None
            if facts.st_size > LARGEST_WHOLE:
                self.too_large.add(name)
                sent.mark = mark
                return None
            data = stream.read()
        digest = digest_of(name, data)
        sent.mark = mark
        if digest == sent.digest:
            return None
        sent.size, sent.digest = len(data), digest
        return Piece(file=name, data=data)


def _crc_of(path: Path, size: int) -> str:
    found = 0
    with open_to_read(path) as stream, storing(path, "read"):
        while size > 0 and (data := stream.read(min(size, _BLOCK))):
            found = zlib.crc32(data, found)
            size -= len(data)
    return f"{found:08x}"
