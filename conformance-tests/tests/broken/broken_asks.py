"""A module that asks for the network while it is imported."""

import contextlib
import socket

from broken_verifier import Right

with contextlib.suppress(OSError):
    socket.create_connection(("192.0.2.1", 80), timeout=0.01)


class AsksAtImport(Right):
    pass
