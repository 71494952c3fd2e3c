"""Processes for code that no one trusts: in a bubblewrap sandbox, or with limits alone where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path

from evsys_verifiers_std.seccomp import filter_program

__all__ = ["Process", "no_sandbox", "spawn"]

_PACKAGE = Path(__file__).parent
_INSIDE = "/evsys"
_SCRATCH_BYTES = 64 << 20
_PROBE_SECONDS = 20.0
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108 - the sandbox's own

type Process = subprocess.Popen[bytes]


@cache
def no_sandbox() -> str | None:
    """Why this machine can make no sandbox; None where it can. Tried once a process, by making one."""
    if shutil.which("bwrap") is None:
        return "bubblewrap isn't installed"
    with _filter() as filtering:
        command = [*_bwrap(filtering), "--", _python(), "-I", "-S", "-c", ""]
        try:
            tried = subprocess.run(
                command,
                env=_ENVIRONMENT,
                pass_fds=filtering,
                capture_output=True,
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            return f"bubblewrap can't be run: {exc}"
    if tried.returncode == 0:
        return None
    told = tried.stderr.decode("utf-8", "replace").strip() or f"exit code {tried.returncode}"
    return f"bubblewrap can't make one: {told}"


def spawn(
    module: str,
    descriptors: Sequence[int],
    *,
    sandboxed: bool,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
) -> Process:
    """Start `main(*descriptors)` of a module of `code_sandbox` in a Python that has nothing but its own library.

    Args:
        module: which.
        descriptors: the ends of pipes that it may use, and no others.
        sandboxed: in a sandbox: no network, no other process's sight, no file but a little room in `/tmp`.
        stdin: of the process.
        stdout: of the process.

    Raises:
        OSError: it can't be started.
    """
    place = _INSIDE if sandboxed else str(_PACKAGE.parent)
    program = (
        f"import sys; sys.path.append({place!r}); "
        f"from evsys_verifiers_std.code_sandbox.{module} import main; main(*{tuple(descriptors)!r})"
    )
    python = [_python(), "-I", "-S", "-B", "-c", program]
    with _filter() if sandboxed else nullcontext(()) as filtering:
        return subprocess.Popen(
            [*_bwrap(filtering), "--", *python] if sandboxed else python,
            env=_ENVIRONMENT,
            cwd="/",
            pass_fds=(*descriptors, *filtering),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@contextmanager
def _filter() -> Iterator[tuple[int, ...]]:
    """A descriptor from which bubblewrap reads the filter of system calls; none where there is no filter."""
    program = filter_program()
    if program is None:
        yield ()
        return
    descriptor = os.memfd_create("evsys-filter", 0)
    try:
        os.write(descriptor, program)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield (descriptor,)
    finally:
        os.close(descriptor)


def _bwrap(filtering: Sequence[int]) -> list[str]:
    words = (
        "bwrap --unshare-user --uid 65534 --gid 65534 --unshare-pid --unshare-net --unshare-ipc --unshare-uts"
    )
    words += " --unshare-cgroup-try --die-with-parent --new-session --cap-drop ALL --ro-bind /usr /usr"
    words += " --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache --ro-bind-try /etc/localtime /etc/localtime"
    command = words.split()
    for name in ("null", "zero", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name in ("bin", "lib", "lib32", "lib64"):
        folder = Path("/", name)
        if folder.is_symlink():
            command += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            command += ["--ro-bind", str(folder), str(folder)]
    for home in sorted({str(Path(_python()).parents[1]), sys.base_prefix}):
        if not home.startswith("/usr"):
            command += ["--ro-bind", home, home]
    inside = f"{_INSIDE}/{_PACKAGE.name}/code_sandbox"
    command += ["--ro-bind", str(_PACKAGE / "code_sandbox"), inside]
    command += ["--size", str(_SCRATCH_BYTES), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"]  # noqa: S108
    return [*command, *(word for number in filtering for word in ("--seccomp", str(number)))]


@cache
def _python() -> str:
    """The interpreter behind this one, of no virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
