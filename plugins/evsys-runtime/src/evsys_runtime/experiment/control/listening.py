"""A socket for requests from this machine: a Unix socket of the user, or a port with a token where there are none."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import struct
import tempfile
from pathlib import Path

import attrs

from evsys.errors import StoreError
from evsys_record.control import CONTROL, Address
from evsys_record.files import read_json
from evsys_record.lock import Holder

__all__ = ["Listener", "Peer", "listen", "peer_of", "runtime_directory"]

LONGEST_PATH = 103
"""Bytes of the path of a Unix socket: 104 on macOS and the BSDs, 108 on Linux, less the final zero."""

BACKLOG = 64


@attrs.frozen(kw_only=True)
class Peer:
    """The process at the other end; None where the system doesn't say."""

    pid: int | None = None
    uid: int | None = None


@attrs.frozen(kw_only=True)
class Listener:
    """A bound socket, and where it is."""

    socket: socket.socket
    address: Address

    def close(self) -> None:
        """Stop listening, and remove the socket's file."""
        self.socket.close()
        if self.address.socket is not None:
            with contextlib.suppress(OSError):
                Path(self.address.socket).unlink()


def listen(directory: Path, *, unix: bool = hasattr(socket, "AF_UNIX")) -> Listener:
    """Bind a socket for an experiment. A socket left by a dead process is removed.

    Args:
        directory: the experiment's folder.
        unix: bind a Unix socket; without, or if its path would be too long, a port on 127.0.0.1.

    Raises:
        OSError: none can be bound.
    """
    _remove_stale(directory)
    holder = attrs.evolve(Holder.here(), token="")
    if unix:
        path = runtime_directory() / f"{os.getpid()}-{secrets.token_hex(6)}.sock"
        if len(os.fsencode(path)) <= LONGEST_PATH:
            bound = _unix_socket(path)
            return Listener(
                socket=bound,
                address=Address(experiment_id=directory.name, holder=holder, socket=str(path)),
            )
    bound = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    address = Address(
        experiment_id=directory.name,
        holder=holder,
        port=bound.getsockname()[1],
        token=secrets.token_urlsafe(32),
    )
    return Listener(socket=bound, address=address)


def _unix_socket(path: Path) -> socket.socket:
    """A listening socket, private to its user."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))  # its folder is the user's alone, so no one connects before the next line
        path.chmod(0o600)
        bound.listen(BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def runtime_directory() -> Path:
    """The folder of the user's sockets: `evsys` in `XDG_RUNTIME_DIR`, else `evsys-<uid>` in the folder of temporary files.

    Raises:
        OSError: it can't be made, or another user prepared it.
    """
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    parent = Path(given)
    if given and parent.is_absolute() and parent.is_dir() and os.access(parent, os.W_OK):
        folder = parent / "evsys"
    else:
        folder = Path(tempfile.gettempdir()) / f"evsys-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def _remove_stale(directory: Path) -> None:
    """Remove the address of an earlier process, and its socket if it left one. The record's lock is held, so it is gone."""
    place = directory / CONTROL
    if not place.exists():
        return
    with contextlib.suppress(OSError, StoreError, KeyError, TypeError):
        left = read_json(place)["socket"]
        if left is not None and Path(left).parent == runtime_directory():
            Path(left).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        place.unlink()


def peer_of(connection: socket.socket) -> Peer:
    """The connected process, by the kernel's word."""
    option = getattr(socket, "SO_PEERCRED", None)
    if connection.family != getattr(socket, "AF_UNIX", None) or option is None:
        return Peer()
    size = struct.calcsize("3i")
    pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, size))
    return Peer(pid=pid, uid=uid)
