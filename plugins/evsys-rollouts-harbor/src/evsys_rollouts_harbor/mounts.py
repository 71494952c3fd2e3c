"""The mounts of a bubblewrap sandbox, in places that nothing inside can replace.

Each command mounts everything again, on the folders that earlier commands left. While it does, the root of this
machine is still there, so a symlink in such a place, or in a folder above it, would lead mounts elsewhere: past the
folders that only the verifier has, or to paths of this machine, where bubblewrap then makes folders and files. The
kernel lets no one rename or remove what something is mounted on, therefore every folder above a mount is a mount
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import attrs

__all__ = ["Mount", "arguments", "make_places", "system_mounts"]

_FROM_HOST = (
    "alternatives ca-certificates ld.so.cache ld.so.conf ld.so.conf.d localtime mime.types nsswitch.conf pki/ca-trust "
    "pki/tls/certs protocols resolv.conf services ssl/certs ssl/openssl.cnf terminfo"
).split()
"""The visible part of `/etc`: nothing that holds a secret."""

_STARTUP = ("R", "java*", "perl", "php", "python3*")
"""Folders of `/etc` from which interpreters load code as they start, `sitecustomize.py` of Python for one: an agent that could
write there would run in each such program of a verifier."""

_READ_ONLY = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""A sandbox of root's would be allowed to write these, and they are this machine's."""

_PROGRAMS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders with shells and the loader of every program: an agent that could replace one would run in each command of a verifier."""

_OWN = ("/dev", "/proc", "/usr")
"""Mounted first, and nothing below them is the agent's."""


@attrs.frozen
class Mount:
    """A file or folder `source` of this machine, shown at the path `target`."""

    source: Path
    target: str
    writable: bool = False


def system_mounts() -> list[Mount]:
    """The paths of this machine visible in every sandbox, in addition to `/usr`."""
    programs = [
        Mount(Path("/", name).resolve(), f"/{name}") for name in _PROGRAMS if Path("/", name).is_dir()
    ]
    startup = sorted(
        str(path) for pattern in _STARTUP for path in Path("/etc").glob(pattern) if path.is_dir()
    )
    shown = (*_READ_ONLY, *(f"/etc/{name}" for name in _FROM_HOST), *startup)
    return programs + [Mount(Path(path), path) for path in shown if Path(path).exists()]


def make_places(root: Path, mounts: Sequence[Mount]) -> None:
    """Make the folders of `root` in which there are mounts, before any command runs inside."""
    for folder in _above(mounts):
        (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)


def arguments(root: Path, mounts: Sequence[Mount]) -> list[str]:
    """The arguments of bubblewrap for a sandbox whose own folder is `root`."""
    words = ["--bind", str(root), "/", "--ro-bind", "/usr", "/usr", "--dev", "/dev", "--proc", "/proc"]
    for folder in _above(mounts):
        words += ["--bind", str(root / folder.lstrip("/")), folder]
    for mount in mounts:
        words += ["--bind" if mount.writable else "--ro-bind", str(mount.source), mount.target]
    return words


def _above(mounts: Sequence[Mount]) -> Iterator[str]:
    """The folders of the sandbox above mounts, the outer ones first."""
    closed = {*_OWN, *(mount.target for mount in mounts)}
    seen: set[str] = set()
    for mount in mounts:
        folders: list[str] = []
        for parent in reversed(PurePosixPath(mount.target).parents[:-1]):
            if str(parent) in closed:
                break
            folders.append(str(parent))
        for folder in folders:
            if folder not in seen:
                seen.add(folder)
                yield folder
