"""The filter of system calls, run by an interpreter of its few instructions."""

import struct

import pytest

from evsys_verifiers_std.seccomp import filter_program

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
X86_64, AARCH64 = 0xC000003E, 0xC00000B7


def outcome(machine: str, architecture: int, number: int, argument: int = 0) -> int:
    """What the filter says of a call: number, architecture, an address and the arguments are what it sees."""
    program = filter_program(machine)
    assert program is not None
    steps = list(struct.iter_unpack("=HBBI", program))
    data = struct.pack("=IIQQ", number, architecture, 0, argument)
    loaded = place = 0
    while True:
        code, jump, otherwise, value = steps[place]
        place += 1
        match code:
            case 0x20:
                [loaded] = struct.unpack_from("=I", data, value)
            case 0x06:
                return value
            case 0x15 | 0x35 | 0x45:
                true = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
                place += jump if true else otherwise
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


@pytest.mark.parametrize(
    ("machine", "architecture", "clone", "refused", "allowed"),
    [
        ("x86_64", X86_64, 56, {57: "fork", 58: "vfork", 101: "ptrace", 319: "memfd_create"}, (0, 1, 59, 60, 231)),
        ("aarch64", AARCH64, 220, {117: "ptrace", 97: "unshare", 279: "memfd_create"}, (63, 64, 93, 221)),
    ],
)  # fmt: skip
def test_processes_are_refused_and_threads_and_the_rest_are_not(
    machine, architecture, clone, refused, allowed
):
    def of(number: int, argument: int = 0) -> int:
        return outcome(machine, architecture, number, argument)

    assert of(clone, 0x11) == EPERM  # SIGCHLD: what fork asks for
    assert of(clone, 0x3D0F00) == ALLOW  # what a C library asks for when it starts a thread
    assert of(435) == ENOSYS
    assert {number: of(number) for number in refused} == dict.fromkeys(refused, EPERM)
    assert {number: of(number) for number in allowed} == dict.fromkeys(allowed, ALLOW)


def test_calls_of_another_table_are_no_way_around_it():
    assert outcome("x86_64", 0x40000003, 2) == KILL  # fork of the 32-bit table
    assert outcome("x86_64", X86_64, 0x40000000 + 57) == EPERM  # fork of the x32 table


def test_an_architecture_whose_numbers_are_not_known_has_no_filter():
    assert filter_program("riscv64") is None
