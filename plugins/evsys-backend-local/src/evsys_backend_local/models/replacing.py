"""A folder takes the place of another: whoever looks finds the old one or the new one, whole."""

from __future__ import annotations

from pathlib import Path

__all__ = ["put_in_place"]


def put_in_place(folder: Path, out: Path) -> None:
    """Make ``folder`` be ``out``; what is there moves beside ``folder``, into the caller's temporary folder, which goes last.

    If that fails the old one is back. A process that is killed between both moves leaves it in the temporary folder.
    """
    if not out.exists():
        folder.rename(out)
        return
    old = folder.with_name(f"{folder.name}.old")
    out.rename(old)
    try:
        folder.rename(out)
    except BaseException:
        old.rename(out)
        raise
