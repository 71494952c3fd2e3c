"""Files that the experiment file names: there, readable, and inside the reach of a relative path."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from evsys_runtime.config import placeholders

__all__ = ["missing", "unwritable"]


def missing(name: str, root: Path, *, folder: bool = False) -> tuple[str, str | None] | None:
    """The problem of a file to read, with a hint, or None.

    Args:
        name: its path as it is written, relative to the project root.
        root: the project root.
        folder: True if a folder is accepted.
    """
    if placeholders.names_in(name):
        return "environment variables are put in plugin params only, not in paths", "write the path out"
    if not name.isprintable():
        return f"{name!r} is not a usable path", "write it without control characters"
    path = root / name
    try:
        if path.is_dir():
            return None if folder else (f"{name} is a folder", "name a file in it")
        if not path.exists():
            if path.is_symlink():
                return f"{name} is a symbolic link that leads nowhere", "point it at a file"
            return f"there is no file {name}", _relative_path(path, root)
        if not path.is_file():
            return (
                f"{name} is not a regular file",
                "write the rows to a file, which can be read more than once",
            )
        if not os.access(path, os.R_OK):
            return f"{name} can't be read", "check its permissions"
        if path.stat().st_size == 0:
            return f"{name} is empty", "fill it, or name another file"
    except OSError as exc:
        return f"{name[:80]!r} is not a usable path: {exc.strerror or exc}", None
    return None


def _relative_path(path: Path, root: Path) -> str:
    if path.parent.is_dir():
        close = get_close_matches(path.name, [item.name for item in path.parent.iterdir()], n=1)
        if close:
            return f"did you mean {close[0]!r} in that folder?"
    return f"paths are relative to the project root, {root}"


def unwritable(name: str, root: Path) -> tuple[str, str | None] | None:
    """The problem of a folder to write, with a hint, or None."""
    if placeholders.names_in(name):
        return "environment variables are put in plugin params only, not in paths", "write the path out"
    if not name or not name.isprintable():
        return f"{name!r} is not a usable path", "name a folder, without control characters"
    path = root / name
    try:
        present = next(part for part in (path, *path.parents) if part.exists() or part.is_symlink())
    except OSError as exc:
        return f"{name[:80]!r} is not a usable path: {exc.strerror or exc}", "name another folder"
    if not present.is_dir():
        what = "a file" if present.exists() else "a symbolic link that leads nowhere"
        return f"{name} can't be made: {present} is {what}", "name another folder"
    if not os.access(present, os.W_OK | os.X_OK):
        return (
            f"{name} can't be written: {present} is read-only",
            "name another folder, or change its permissions",
        )
    return None
