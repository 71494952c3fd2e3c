"""The environment `bwrap`: a private root folder in a bubblewrap sandbox, with this machine's `/usr` to read.

One sandbox holds its process namespace open from `start` to `stop`, and each command enters it, so what one command leaves
running is there for the next. Nothing inside has a capability, and killing the namespace's first process kills all of them.
Files cross the border as tar streams made or taken apart inside, since a path that an agent has been at may lead anywhere.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar

import attrs

from evsys import option
from evsys.errors import ConfigError, PluginLoadError, Problem, RolloutError
from evsys_rollouts_harbor.disk_use import watch_disk_use
from evsys_rollouts_harbor.mounts import Mount, arguments, make_places, system_mounts
from evsys_rollouts_harbor.namespaces import Namespaces, remove_tree
from evsys_rollouts_harbor.transfer import TooLargeError, pack, unpack

__all__ = ["BwrapEnvironment", "Execution", "missing_programs"]

_FOLDERS = (
    "app dev etc home mnt opt proc root run solution srv tests tmp usr "
    "logs/agent logs/artifacts logs/verifier var/lib var/log var/tmp"
).split()
HOME = str(PurePosixPath("/", "root"))
"""The home folder in containers, which tasks are written for."""

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "USER": "root",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
}
_WITHOUT_STARTUP_FILES = {"PYTHONNOUSERSITE": "1", "R_PROFILE_USER": "/dev/null"}
"""Keep interpreters from loading code out of the home, where the agent may have put it."""
_MOST_OUTPUT = 16 * 1024 * 1024
"""Bytes kept of each of a command's two outputs."""

WORKDIR = "/app"

_VERIFIERS = ("/tests", "/logs/verifier")
"""The folders for a verifier's own files and for the rewards."""


@attrs.frozen(kw_only=True)
class Execution:
    """How a command ended. `return_code` is negative for one that a signal ended."""

    stdout: str = ""
    stderr: str = ""
    return_code: int = 0


def missing_programs() -> list[str]:
    """The programs that a sandbox needs and this machine lacks."""
    return [name for name in ("bwrap", "nsenter", "tar") if shutil.which(name) is None]


class BwrapEnvironment:
    """A sandbox on this machine, without an engine for containers and without root.

    A command sees `/usr` and a little of `/etc` read-only, and folders of its own everywhere else. It runs as `root` of the
    sandbox, without any capability. Limits of memory and processors aren't enforced.
    """

    name: ClassVar[str] = "bwrap"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `bwrap`."""

        network: bool = option(
            False,
            "commands share this machine's network, loopback included, where they reach what listens there; an agent that "
            "runs inside and asks the model by an address needs it",
        )
        keep_processes: bool = option(
            False,
            "processes of the agent keep running during verification, for tasks about services; such a process can write "
            "the rewards",
        )
        keep_user_site: bool = option(
            False,
            "programs see Python packages that the agent installed in its home during verification; such a package can run "
            "code in every Python of the verifier",
        )
        disk_mb: int = option(
            10_240,
            "maximum size of everything in the sandbox, in MiB; beyond it all processes inside are killed",
            ge=1,
        )
        copy_mb: int = option(1024, "maximum size of a copy out of the sandbox, in MiB", ge=1)
        mounts: list[str] = option(
            attrs.Factory(list),
            "absolute host paths to mount read-only in the sandbox, at the same place",
        )
        env: dict[str, str] = option(attrs.Factory(dict), "environment variables of all commands")
        image: str = option(
            "refuse",
            "what becomes of a task that builds or names an image of its own: it is refused, or runs without that image",
            choices=("refuse", "ignore"),
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        _check_mounts(self.config.mounts)
        if lacking := missing_programs():
            raise PluginLoadError(
                f"environment 'bwrap' needs {', '.join(lacking)}, which this machine doesn't have",
                hint="install bubblewrap (Debian, Ubuntu: apt install bubblewrap util-linux tar), or name another environment",
                kind="environment",
            )
        self._folder: Path | None = None
        self._verifications = 0
        self._verifying = False
        self._spaces: Namespaces | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_full = False
        self._shell = "bash" if shutil.which("bash") else "sh"

    # --- its life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make the sandbox.

        Raises:
            RolloutError: this machine doesn't let it be made.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="evsys-bwrap-"))
        _furnish(self._root)
        for name in ("io", "shm"):
            (self._folder / name).mkdir()
        (self._folder / "empty").touch()
        make_places(self._root, self._mounts())
        await self._enter()
        self._watching = asyncio.create_task(
            watch_disk_use(self._folder, self.config.disk_mb << 20, self._close_full)
        )

    async def _close_full(self) -> None:
        self._is_full = True
        if self._spaces is not None:
            await self._spaces.close()

    async def _enter(self) -> None:
        self._spaces = Namespaces(network=self.config.network)
        await self._spaces.open(self._mounting(), environment=_ENVIRONMENT)

    async def begin_verification(self) -> None:
        """Leave the verifier alone with the files: every process inside is killed, and `/tests` and `/logs/verifier` become new
        folders that no earlier command could open.

        Raises:
            RolloutError: the sandbox isn't there, or can't be made again.
        """
        self._verifications += 1
        self._verifying = True
        for name in _VERIFIERS:
            (self._verifiers / name.strip("/")).mkdir(parents=True)
        if self._spaces is not None and not self.config.keep_processes:
            await self._spaces.close()
            await self._enter()

    def begin_acting(self) -> None:
        """Let commands see `/tests` and `/logs/verifier` as the agent left them, for the next step of a task."""
        self._verifying = False

    async def stop(self) -> None:
        """End everything inside and remove its files. Safe to call twice, and without a start."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
        if self._spaces is not None:
            await self._spaces.close()
            self._spaces = None
        if self._folder is not None:
            folder, self._folder = self._folder, None
            await asyncio.to_thread(remove_tree, folder)

    # --- what it is for -----------------------------------------------------------------------------------------

    async def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Execution:
        """Run a shell command. It is over when its first process is; what that left running continues.

        Args:
            command: what the shell is given.
            cwd: where; by default `/app`.
            env: more environment variables.
            timeout_seconds: after this time the command and what it started are killed.

        Raises:
            TimeoutError: its time was over.
            RolloutError: the sandbox isn't there.
        """
        with self._spool() as out, self._spool() as err:
            code = await self._run(
                [self._shell, "-c", command],
                stdout=out,
                stderr=err,
                cwd=cwd or WORKDIR,
                env=env or {},
                timeout_seconds=timeout_seconds,
            )
            return Execution(stdout=_text(out), stderr=_text(err), return_code=code)

    async def put(self, source: Path, target: str) -> None:
        """Copy a file to a path inside, or what a folder holds into a folder inside.

        Raises:
            RolloutError: it can't be written there.
        """
        folder = target if await asyncio.to_thread(source.is_dir) else str(PurePosixPath(target).parent)
        with self._spool() as packed, self._spool() as err:
            await asyncio.to_thread(pack, source, packed, PurePosixPath(target).name)
            packed.seek(0)
            place = shlex.quote(folder)
            command = f"mkdir -p {place} && tar -xpf - --no-same-owner -C {place}"
            code = await self._run(["sh", "-c", command], stdin=packed, stderr=err)
            if code:
                why = _text(err).strip() or f"exit code {code}"
                raise RolloutError(f"can't copy {source} to {target} in the sandbox: {why}")

    async def get(self, source: str, target: Path) -> None:
        """Copy a file from inside to a path, or what a folder inside holds into a folder.

        Devices, and links that lead out of what is copied, stay behind.

        Raises:
            FileNotFoundError: there is no such file or folder inside.
            RolloutError: it is larger than `copy_mb`, holes of sparse files included.
        """
        path = PurePosixPath(source)
        most = self.config.copy_mb << 20
        command = (
            f"ulimit -f {most // 512}; "  # of the stream, which is a file; holes of sparse files aren't in it
            f"if [ -d {shlex.quote(source)} ]; then tar -cSf - -C {shlex.quote(source)} .; "
            f"else tar -cSf - -C {shlex.quote(str(path.parent))} {shlex.quote(path.name)}; fi"
        )
        with self._spool() as packed, self._spool() as err:
            code = await self._run(["sh", "-c", command], stdout=packed, stderr=err)
            if packed.seek(0, os.SEEK_END) >= most:
                raise _too_much(source, self.config.copy_mb)
            if code:
                why = _text(err).strip() or f"exit code {code}"
                raise FileNotFoundError(f"can't copy {source} from the sandbox: {why}")
            packed.seek(0)
            try:
                await asyncio.to_thread(unpack, packed, target, path.name, most=most)
            except TooLargeError as exc:
                raise _too_much(source, self.config.copy_mb) from exc
            except tarfile.TarError as exc:
                raise RolloutError(f"what {source} holds in the sandbox can't be read: {exc}") from exc

    # --- inside -------------------------------------------------------------------------------------------------

    @property
    def _root(self) -> Path:
        return self._there / "root"

    @property
    def _verifiers(self) -> Path:
        """The folders that only the verifier of this step sees."""
        return self._there / f"verifier-{self._verifications}"

    @property
    def _there(self) -> Path:
        if self._folder is None:
            raise RolloutError("the sandbox isn't started, or was stopped")
        return self._folder

    def _mounts(self) -> list[Mount]:
        own = self._verifiers if self._verifying else self._root
        return [
            *system_mounts(),
            Mount(
                self._there / "empty", "/etc/ld.so.preload"
            ),  # or an agent's library would be in every program
            *(Mount(own / path.strip("/"), path, writable=True) for path in _VERIFIERS),
            *(Mount(Path(path), path) for path in self.config.mounts),
            Mount(self._there / "shm", "/dev/shm", writable=True),  # noqa: S108 - the sandbox's own
        ]

    def _mounting(self) -> list[str]:
        return arguments(self._root, self._mounts())

    def _spool(self) -> IO[bytes]:
        """A file for what goes in or comes out: a pipe would stay open as long as anything left running."""
        spool: IO[bytes] = tempfile.TemporaryFile(dir=self._there / "io")  # noqa: SIM115 - the caller's `with` closes it
        return spool

    async def _run(
        self,
        arguments: Sequence[str],
        *,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> int:
        if self._spaces is None:
            raise RolloutError("the sandbox isn't started, or was stopped")
        self._refuse_if_full()
        null = asyncio.subprocess.DEVNULL
        hidden = {} if self.config.keep_user_site or not self._verifying else _WITHOUT_STARTUP_FILES
        with os.fdopen(_variables({**self.config.env, **hidden, **(env or {})}), "rb") as variables:
            process = await asyncio.create_subprocess_exec(
                *self._spaces.entering(),
                *self._mounting(),
                *("--args", str(variables.fileno()), "--chdir", cwd, "--"),
                *arguments,
                stdin=stdin or null,
                stdout=stdout or null,
                stderr=stderr or null,
                env=_ENVIRONMENT,
                pass_fds=(*self._spaces.descriptors, variables.fileno()),
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(timeout_seconds):
                code = await process.wait()
        finally:
            if process.returncode is None:
                _kill_group(process.pid)
                await process.wait()
        self._refuse_if_full()
        return code

    def _refuse_if_full(self) -> None:
        if self._is_full:
            raise RolloutError(
                f"the sandbox held more than {self.config.disk_mb} MiB, and was closed",
                hint="raise disk_mb of the environment if it may",
            )


def _too_much(source: str, most: int) -> RolloutError:
    return RolloutError(
        f"{source} in the sandbox holds more than {most} MiB",
        hint="raise copy_mb of the environment if it may",
    )


def _variables(env: Mapping[str, str]) -> int:
    """A descriptor from which bubblewrap reads variables: they show in no list of processes, and reach no program outside."""
    words = [word for name, value in env.items() for word in ("--setenv", name, value)]
    descriptor = os.memfd_create("evsys-variables", 0)
    os.write(descriptor, b"".join(f"{word}\0".encode() for word in words))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _furnish(root: Path) -> None:
    """The folders that programs expect, and who is who."""
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for folder in ("tmp", "var/tmp", "run"):
        (root / folder).chmod(0o1777)
    (root / "etc/passwd").write_text(f"root:x:0:0:root:{HOME}:/bin/sh\n", encoding="utf-8")
    (root / "etc/group").write_text("root:x:0:\n", encoding="utf-8")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n", encoding="utf-8")


def _check_mounts(mounts: Sequence[str]) -> None:
    for index, path in enumerate(mounts):
        if not path.startswith("/"):
            raise ConfigError([Problem(path=f"mounts[{index}]", message=f"{path!r} is not an absolute path")])
        if not Path(path).exists():
            raise ConfigError(
                [Problem(path=f"mounts[{index}]", message=f"there is no {path} on this machine")]
            )


def _text(spool: IO[bytes]) -> str:
    size = spool.seek(0, os.SEEK_END)
    spool.seek(0)
    text = spool.read(_MOST_OUTPUT).decode("utf-8", "replace")
    return text if size <= _MOST_OUTPUT else f"{text}\n[{size - _MOST_OUTPUT} more bytes left out]"
