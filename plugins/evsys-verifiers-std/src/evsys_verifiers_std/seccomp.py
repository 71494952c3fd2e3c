"""A filter of system calls for the sandbox: no new process, and nothing that keeps memory that no limit counts.

A limit of processes alone holds no one whose user is root outside, which a sandbox's user often is.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping

import attrs

__all__ = ["filter_program"]

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Places in the kernel's `struct seccomp_data`; of the first argument, its low half."""

_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x00010000
_CLONE3 = 435


@attrs.frozen(kw_only=True)
class _Machine:
    """Numbers of an architecture, from its table of system calls in the kernel."""

    architecture: int
    clone: int
    refused: tuple[int, ...]
    foreign: int | None = None


_X86_64 = _Machine(
    architecture=0xC000003E,
    clone=56,
    # fork vfork ptrace shmget semget msgget mq_open unshare setns memfd_create memfd_secret bpf userfaultfd
    # perf_event_open io_uring_setup keyctl add_key request_key mount
    refused=(57, 58, 101, 29, 64, 68, 240, 272, 308, 319, 447, 321, 323, 298, 425, 250, 248, 249, 165),
    foreign=0x40000000,  # calls of the x32 table, which would pass by other numbers
)
_AARCH64 = _Machine(
    architecture=0xC00000B7,
    clone=220,
    # ptrace shmget semget msgget mq_open unshare setns memfd_create memfd_secret bpf userfaultfd perf_event_open
    # io_uring_setup keyctl add_key request_key mount
    refused=(117, 194, 190, 186, 180, 97, 268, 279, 447, 280, 282, 241, 425, 219, 217, 218, 40),
)
_MACHINES: Mapping[str, _Machine] = {"x86_64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter as the kernel takes it, None for an architecture whose numbers aren't known here.

    Threads are allowed. A refused call fails with EPERM; one of another architecture's table ends the process.
    """
    known = _MACHINES.get(platform.machine() if machine is None else machine)
    if known is None:
        return None
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, known.architecture, jump=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if known.foreign is not None:
        program += [_step(_AT_LEAST, known.foreign, otherwise=1), _step(_RETURN, _ERROR | _EPERM)]
    for number in known.refused:
        program += [_step(_EQUAL, number, otherwise=1), _step(_RETURN, _ERROR | _EPERM)]
    program += [
        _step(_EQUAL, _CLONE3, otherwise=1),
        _step(_RETURN, _ERROR | _ENOSYS),
    ]  # C libraries then use clone
    program += [
        _step(_EQUAL, known.clone, otherwise=3),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_ANY_BIT, _CLONE_THREAD, jump=1),
        _step(_RETURN, _ERROR | _EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _step(code: int, value: int, *, jump: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump, otherwise, value)
