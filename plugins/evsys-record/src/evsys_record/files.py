"""Whole files replaced atomically, folders, and appending: the only places where the record touches a
disk.

A process that is killed leaves the old file or the new one, never half of one. The contents of a whole file also
survive a power cut: file and folder are synced before the call returns.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from evsys.errors import StoreError
from evsys_record.encoding import encode_pretty, field_values, utf8

__all__ = [
    "DISK_FULL",
    "FORMAT",
    "SPOOLED",
    "TORN",
    "make_directory",
    "open_for_append",
    "open_to_read",
    "read_json",
    "refuse_links",
    "shared_file",
    "store_error",
    "storing",
    "sweep",
    "sync_directory",
    "sync_file",
    "temporary_name",
    "write_all",
    "write_atomic",
    "write_json",
]

SPOOLED = "rows-*.jsonl.part"
"""The names of files of rows; a killed process leaves its own."""

FORMAT = 1
"""Version of every file of the record."""

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Numbers of the errors that a disk without room gives."""

TORN = b"\x18"
"""Written behind an unfinished line (JSON can't hold this byte), so that readers skip it."""

_HINTS = {
    errno.ENOSPC: "free some space, then run it again",
    errno.EDQUOT: "the disk quota is used up; free some space, then run it again",
    errno.EFBIG: "the system limits the size of files; raise the limit (`ulimit -f`)",
    errno.EACCES: "make it writable, or choose another output_dir",
    errno.EPERM: "make it writable, or choose another output_dir",
    errno.EROFS: "this file system is read-only; choose another output_dir",
    errno.ENAMETOOLONG: "use shorter names, or an output_dir nearer the root",
    errno.EMFILE: "raise the limit on open files (`ulimit -n`), or lower max_concurrent_arms",
    errno.ENOTDIR: "a file is in the way of a folder of this name; move it",
    errno.EISDIR: "a folder is in the way of a file of this name; move it",
}


def store_error(exc: OSError, path: Path, action: str = "write") -> StoreError:
    """The error of a failed operation: what failed, where, and what to do."""
    reason = exc.strerror or str(exc)
    hint = _HINTS.get(exc.errno or 0)
    return StoreError(f"can't {action} {path}: {reason}", hint=hint, path=str(path), number=exc.errno)


@contextmanager
def storing(path: Path, action: str = "write") -> Iterator[None]:
    """Turn an `OSError` inside into the `StoreError` that `store_error` makes of it."""
    try:
        yield
    except StoreError:
        raise
    except OSError as exc:
        raise store_error(exc, path, action) from exc


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; `os.write` may write fewer than it was given."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable. Does nothing where folders can't be synced (Windows, some network disks)."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:
            raise
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make what a file holds durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_name(path: Path) -> Path:
    """A free name alongside `path` that no reader lists: it starts with a dot and ends in `.tmp`."""
    return path.with_name(f".{path.name[:80]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def sweep(directory: Path, *, older_than: float = 0.0) -> list[Path]:
    """Remove what killed processes left under temporary names in this folder, not below it.

    Only for a folder that no one else writes to now, or with an age in seconds that no writing takes.
    """
    limit = time.time() - older_than
    swept = []
    for path in directory.glob(".*.tmp"):
        with contextlib.suppress(OSError):  # someone else swept it, or it stays for the next time
            if path.stat().st_mtime <= limit:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                swept.append(path)
    return swept


def shared_file(experiments: Path, name: str) -> Path:
    """The path of a file about all experiments in a folder: next to `.evsys/experiments`, and hidden inside a
    folder elsewhere.
    """
    return experiments.parent / name if experiments.parent.name == ".evsys" else experiments / f".{name}"


def refuse_links(directory: Path) -> None:
    """Refuse a record inside which a symbolic link leads out of it: writing to a record of someone else would change other files.

    Folders that agents leave, below `files`, hold any links, and nothing is written there again.

    Raises:
        StoreError: names the link, and where it leads.
    """
    root = directory.resolve()
    for folder, folders, names in directory.walk():
        if folder.parent.parent.name == "files":
            folders.clear()
            continue
        for path in (folder / name for name in (*folders, *names)):
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise StoreError(
                    f"{path} is a symbolic link to {path.readlink()}, outside the record",
                    hint="replace it by the file or folder itself, if you trust the record",
                    path=str(path),
                )


def project_of(experiments: Path) -> Path:
    """The project of a folder of experiments; for a folder elsewhere, its parent."""
    return experiments.parent.parent if experiments.parent.name == ".evsys" else experiments.parent


def make_directory(path: Path) -> Path:
    """Create a folder with its parents; no error when it is there."""
    with storing(path, "create folder"):
        path.mkdir(parents=True, exist_ok=True)
    return path


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o666) -> None:
    """Replace the whole file, or leave it as it was. Text is written by the rule of `utf8`, so that any text can be.

    `mode` is that of the file, less the umask.

    Raises:
        StoreError: the disk is full, the folder isn't writable, ...; nothing is left behind.
    """
    content = utf8(data) if isinstance(data, str) else data
    temporary = temporary_name(path)
    with storing(path):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            try:
                write_all(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):  # gone already when the replacement worked
                temporary.unlink()
        sync_directory(path.parent)


def write_json(path: Path, obj: Any) -> None:
    """Replace a JSON file: `"format": 1` first, keys sorted, UTF-8, every field of an attrs class written.

    A number that isn't finite becomes null, since JSON has none.

    Raises:
        StoreError: the file can't be written, or a value has no JSON form.
    """
    fields = field_values(obj)
    try:
        text = encode_pretty(obj if fields is None else fields, {"format": FORMAT})
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(
            f"can't write {path}: {exc}", hint="records hold plain values", path=str(path)
        ) from exc
    write_atomic(path, text)


def open_to_read(path: Path) -> BufferedReader:
    """Open a file that someone else may have prepared: nothing waits for a pipe that no one writes to, or reads a device without end.

    Raises:
        StoreError: it can't be opened, or is not a regular file.
    """
    with storing(path, "read"):
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if not stat.S_ISREG(mode):
                raise StoreError(f"can't read {path}: it is not a regular file", path=str(path))
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise


def read_json(path: Path, *, hint: str | None = None) -> dict[str, Any]:
    """Read a JSON file of the record.

    Args:
        path: the file.
        hint: what to do where it is damaged.

    Raises:
        StoreError: it is missing, unreadable, not a JSON mapping, or of a newer format.
    """
    with open_to_read(path) as stream, storing(path, "read"):
        content = stream.read()
    try:
        tree = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        raise StoreError(f"{path} isn't JSON: {exc}", hint=hint, path=str(path)) from exc
    if not isinstance(tree, dict):
        problem = f"{path} holds a JSON {type(tree).__name__}, expected a mapping"
        raise StoreError(problem, hint=hint, path=str(path))
    version = tree.get("format")
    if version != FORMAT:
        raise StoreError(
            f"{path} has format {version!r}, this evsys reads {FORMAT}", hint="upgrade evsys", path=str(path)
        )
    return tree


def open_for_append(path: Path) -> int:
    """A descriptor whose writes go to the end. An unfinished last line is closed off first.

    Safe alongside other writers: what is appended to close a line is at worst an extra line that readers skip.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        tail = _partial_line(descriptor)
        if tail:
            write_all(descriptor, b"\n" if _is_json(tail) else TORN + b"\n")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _partial_line(descriptor: int, block: int = 65536) -> bytes:
    """The text after the last newline."""
    end = os.fstat(descriptor).st_size
    tail = b""
    while end > 0:
        start = max(0, end - block)
        os.lseek(descriptor, start, os.SEEK_SET)
        chunk = os.read(descriptor, end - start)
        _, newline, rest = chunk.rpartition(b"\n")
        if newline:
            return rest + tail
        tail = chunk + tail
        end = start
    return tail


def _is_json(line: bytes) -> bool:
    """True for a complete object: no object is the beginning of another, so a torn one is never taken for whole."""
    try:
        return isinstance(json.loads(line.decode("utf-8")), dict)
    except ValueError:
        return False
