"""Programs of a researcher: in bubblewrap with nothing of the project in sight but a copy, and ended as a whole."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import attrs

from evsys.errors import ConfigError

__all__ = ["Ended", "Sandbox", "run_program"]

PROBE_SECONDS = 20.0
TAIL = 2000
"""Characters of a program's output that are kept."""


@attrs.frozen(kw_only=True)
class Ended:
    """How a program ended. `timed_out` is True if its time was up and it was killed with all its children."""

    code: int
    tail: str
    timed_out: bool = False


@attrs.frozen(kw_only=True)
class Sandbox:
    """Keeps programs from seeing each `hidden` file or folder; `kind` none hides nothing."""

    kind: str = "bwrap"
    hidden: tuple[Path, ...] = ()
    network: bool = False

    def check(self) -> None:
        """Refuse a machine that can't make it.

        Raises:
            ConfigError: bubblewrap is missing, or may not be used.
        """
        if self.kind == "bwrap" and (why := no_bubblewrap()) is not None:
            raise ConfigError(
                f"the researcher's programs can't be sandboxed: {why}",
                hint="install bubblewrap, or set sandbox: none, which the report says",
            )

    def command(self, words: Sequence[str], directory: Path, *, place: Path | None = None) -> list[str]:
        """The words of a program in the sandbox, where it sees `directory` (at `place`) and may write there alone."""
        if self.kind == "none":
            return list(words)
        found = [
            "bwrap",
            "--die-with-parent",
            "--new-session",
            "--unshare-pid",
            "--unshare-ipc",
            "--cap-drop",
            "ALL",
        ]
        found += [] if self.network else ["--unshare-net"]
        found += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
        for path in _outermost(self.hidden):
            found += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", os.devnull, str(path)]
        for path in _own_code():
            found += ["--ro-bind", str(path), str(path)]
        found += ["--bind", str(directory), str(place or directory), "--chdir", str(place or directory), "--"]
        return [*found, *words]


@cache
def no_bubblewrap() -> str | None:
    """Why this machine can make no sandbox; None if it can. Tried once a process."""
    if shutil.which("bwrap") is None:
        return "bubblewrap isn't installed"
    command = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"bubblewrap can't be run: {exc}"
    return None if tried.returncode == 0 else tried.stderr.decode("utf-8", "replace").strip()


def _outermost(paths: Sequence[Path]) -> list[Path]:
    """Existing paths that lie in none of the others, links followed."""
    real = sorted({path.resolve() for path in paths if path.exists()})
    return [path for path in real if not any(path != other and path.is_relative_to(other) for other in real)]


def _own_code() -> list[Path]:
    """The folders of this Python and of evsys, which a hidden folder may contain."""
    found = {Path(sys.prefix), Path(sys.base_prefix), *(Path(each) for each in sys.path if each)}
    return sorted({path for path in found if path.is_dir()})


async def run_program(
    words: Sequence[str],
    *,
    sandbox: Sandbox,
    directory: Path,
    seconds: float | None,
    text: str = "",
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program in a sandbox with `text` on its standard input; at the time limit or if cancelled, all of it is killed."""
    process = await asyncio.create_subprocess_exec(
        *sandbox.command(words, directory),
        cwd=directory,
        env={**os.environ, **(environment or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            tail = await _converse(process, text.encode("utf-8"))
            return Ended(code=await process.wait(), tail=tail)
    except TimeoutError:
        return Ended(code=-signal.SIGKILL, tail=f"no end within {seconds:g} s", timed_out=True)
    finally:
        _kill_group(process.pid)
        await process.wait()


async def _converse(process: asyncio.subprocess.Process, text: bytes) -> str:
    """Give a program its input, and return the end of its output."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(text)
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it reads no input
    tail = b""
    while block := await process.stdout.read(65536):
        tail = (tail + block)[-4 * TAIL :]
    return tail.decode("utf-8", "replace")[-TAIL:].strip()


def _kill_group(pid: int) -> None:
    """End what is left of a program's process group, which it leads."""
    with suppress(ProcessLookupError):  # all of it has ended
        os.killpg(pid, signal.SIGKILL)
