"""A folder takes the place of another: readers find the old one or the new one, whole.

The new one is made in a temporary folder next to it. While its process lives the kernel holds a lock on a file in
there (`flock`), so that a temporary folder whose lock is free was left by a killed process. Without `flock` such a
folder stays.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["give_back", "put_in_place", "restoration_note", "workplace"]

#: Holds the name of the folder that is to be made.
_LOCK = "evsys-lock"

_NEW, _OLD = "model", "model.old"


@contextmanager
def workplace(out: Path) -> Iterator[Path]:
    """An empty folder on the file system of ``out``, for what is to be put there; its parent is temporary and goes in the end."""
    home = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    lock = _new_lock(home, out.name)
    try:
        (home / _NEW).mkdir()
        yield home / _NEW
    finally:
        try:
            _clear(home)
        finally:
            if lock is not None:
                os.close(lock)


def put_in_place(folder: Path, out: Path) -> None:
    """Make ``folder``, a `workplace`, be ``out``; what is there moves alongside ``folder``, and goes with the
    temporary folder.

    If that fails the old one is back. Of a process killed between both moves `give_back` puts it back.
    """
    if not out.exists():
        folder.rename(out)
        return
    old = folder.with_name(_OLD)
    out.rename(old)
    try:
        folder.rename(out)
    except BaseException:
        old.rename(out)
        raise


def give_back(parent: Path, name: str | None = None) -> list[Path]:
    """Clear what killed processes left in ``parent``.

    Args:
        parent: where folders are made.
        name: only what was to be this folder.

    Returns:
        Folders that were gone, since a process was killed as it replaced them, and are back as they were.
    """
    found = (_recover_folder(home, name) for home in sorted(parent.glob(".*-*")))
    return [folder for folder in found if folder is not None]


def restoration_note(folder: Path) -> str:
    """The message about a folder restored."""
    return f"{folder}: what replaced this model was killed as it did; the model is back as it was"


def _recover_folder(home: Path, name: str | None) -> Path | None:
    """Clear a temporary folder if no one holds it; the folder that was gone and is back."""
    held = _free_lock(home)
    if held is None:
        return None
    lock, own = held
    try:
        if name is not None and own != name:
            return None
        out, back = home.parent / own, None
        # Both are there only between the moves: a folder that someone removed later doesn't come back.
        if not out.exists() and (home / _OLD).is_dir() and (home / _NEW).is_dir():
            (home / _OLD).rename(out)
            back = out
        _clear(home)
        return back
    finally:
        os.close(lock)


def _clear(home: Path) -> None:
    """Remove a temporary folder, its lock last: of one that is killed here, the rest is found again."""
    try:
        inside = list(home.iterdir())
    except FileNotFoundError:
        return  # another process was as quick
    for path in inside:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOCK:
            path.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def _new_lock(home: Path, name: str) -> int | None:
    """A file that this process holds; None where there are no such locks."""
    try:
        import fcntl
    except ImportError:
        return None
    draft = home / f"{_LOCK}.new"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, os.fsencode(name))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(home / _LOCK)  # only now others see it
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _free_lock(home: Path) -> tuple[int, str] | None:
    """The lock of a temporary folder, held now, and the name in it; None where its process lives, or it is something else."""
    try:
        import fcntl

        descriptor = os.open(home / _LOCK, os.O_RDWR)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        name = os.fsdecode(os.read(descriptor, 4096))
        if name and Path(name).name == name:
            return descriptor, name
    except OSError:
        pass  # someone holds it
    os.close(descriptor)
    return None
