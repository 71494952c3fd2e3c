"""One process at a time on an experiment; a second one gets an error that names the holder.

The lock is the kernel's (`flock`), so it ends with its process, however that dies. Alongside it the file says who
holds it, and the file's time is renewed while it is held: this protects against other machines that share the
folder, and carries the lock alone where the file system has no `flock`. A holder that fell silent for a minute, or
is known to be dead, is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

import attrs

from evsys.errors import StoreError
from evsys_record.encoding import encode_record, now, utf8
from evsys_record.files import make_directory, refuse_links, storing, temporary_name, write_all

__all__ = ["LEASE_SECONDS", "ExperimentLock", "Holder", "waiting_lock"]

LEASE_SECONDS = 60.0
"""A holder that this machine can't see into is taken for dead when it hasn't renewed its lock for so long."""

PATIENCE_SECONDS = 120.0
"""How long `waiting_lock` waits; a process that waits longer gets an error that names the holder."""

_PAUSE_SECONDS = 0.02

_UNSUPPORTED = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


@attrs.frozen(kw_only=True)
class Holder:
    """The holder of a lock. `boot` identifies the machine's boot and `process_started` the process, so that a
    reused process number isn't taken for the holder; both are None if the system doesn't report them.
    """

    pid: int
    host: str
    since: str
    boot: str | None = None
    process_started: str | None = None
    token: str = ""

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        pid = os.getpid()
        return cls(
            pid=pid,
            host=socket.gethostname(),
            since=now(),
            boot=_boot(),
            process_started=_process_started(pid),
            token=os.urandom(8).hex(),
        )

    @property
    def same_machine(self) -> bool:
        """True when it runs, or ran, on this machine since it was last started."""
        boot = _boot()
        return self.boot == boot if boot and self.boot else self.host == socket.gethostname()

    @property
    def dead(self) -> bool:
        """True when it certainly runs no more; False when it runs or no one here can know."""
        if self.host != socket.gethostname() or self.boot != _boot():
            return False  # another machine, even if it has this one's name, or a container with numbers of its own
        started = _process_started(self.pid)
        if started and self.process_started:
            return started != self.process_started
        return not _alive(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class ExperimentLock:
    """Held from `acquire` to `release`, or as a context manager. Not for threads: one object, one owner."""

    def __init__(self, directory: Path, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.directory = directory
        self._lock_file = directory / ".lock"
        self._lease_file = directory / ".lease"
        self._lease_seconds = lease_seconds
        self._me: Holder | None = None
        self._descriptor: int | None = None
        self._stop = Event()
        self._lost: Holder | None = None
        self._on_loss: Callable[[], None] = lambda: None

    @property
    def held(self) -> bool:
        """True between `acquire` and `release`."""
        return self._me is not None

    @property
    def lost(self) -> bool:
        """True if another process took the lock over, because this one was suspended for longer than a lease."""
        return self._lost is not None

    def when_lost(self, call: Callable[[], None]) -> None:
        """Have `call` called, in another thread, when the lock is lost."""
        self._on_loss = call

    def refuse_if_lost(self) -> None:
        """Call it before what is locked is written to.

        Raises:
            StoreError: the lock is another process's by now.
        """
        if self._lost is not None:
            raise StoreError(
                f"{self.directory.name} was taken over by {self._lost}, since this process had been suspended for longer than "
                f"{self._lease_seconds:g} s; it writes nothing more",
                hint="let that process continue, or stop it and resume",
                path=str(self.directory),
                holder=str(self._lost),
            )

    def holder(self) -> Holder | None:
        """Who holds the lock now, this process included; None when no one does."""
        for path in (self._lock_file, self._lease_file):
            holder = _read(path)
            if holder is not None and not holder.dead and (holder.same_machine or not self._silent(path)):
                return holder
        return None

    def acquire(self) -> Self:
        """Take the lock.

        Raises:
            StoreError: another process has it; the message names it. Or the folder isn't writable, or a link in it leads out.
        """
        if self._me is not None:
            raise self._refusal(self._me)
        make_directory(self.directory)
        refuse_links(self.directory)
        me = Holder.here()
        with storing(self.directory, "lock"):
            path = self._acquire_with_kernel(me) or self._acquire_with_lease(me)
        self._me, self._lost = me, None
        self._stop.clear()
        Thread(target=self._renew, args=(me, path), name="evsys-lock", daemon=True).start()
        return self

    def release(self) -> None:
        """Give the lock back. Safe to call twice."""
        if self._me is None:
            return
        self._stop.set()
        with storing(self.directory, "unlock"):
            if self._descriptor is not None:
                if self._lost is None:
                    os.ftruncate(self._descriptor, 0)
                os.close(self._descriptor)
            elif _read(self._lease_file) == self._me:
                self._lease_file.unlink(missing_ok=True)
        self._descriptor = self._me = None

    def __enter__(self) -> Self:
        return self if self.held else self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _acquire_with_kernel(self, me: Holder) -> Path | None:
        """None where the file system has no such locks. The file stays when the lock goes, or two could hold it."""
        path = self._lock_file
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, descriptor)
            try:
                _flock(descriptor)
            except BlockingIOError:
                raise self._refusal(_read(path)) from None
            except OSError as exc:
                if exc.errno not in _UNSUPPORTED:
                    raise
                return None
            holder = _read(path)
            if holder is not None and not holder.same_machine and not self._silent(path):
                raise self._refusal(holder)
            os.ftruncate(descriptor, 0)
            write_all(descriptor, _text(me))
            undo.pop_all()
        self._descriptor = descriptor
        return path

    def _acquire_with_lease(self, me: Holder) -> Path:
        """Create the file if it isn't there, or replace it if its holder is gone.

        A process that replaces the lease of holder T first creates a file named after T: one process alone can, and
        no other may replace the same lease. Having created it, it looks again whether the lease still is T's.
        """
        path = self._lease_file
        with contextlib.suppress(FileExistsError):
            _create(path, _text(me))
            return path
        holder = _read(path)  # None: someone is just writing it, or was killed then
        if not (holder and holder.dead) and not self._silent(path):
            raise self._refusal(holder)
        claim = path.with_name(f".lease.{holder.token if holder else 'empty'}")
        try:
            _create(claim, _text(me))
        except FileExistsError:
            raise self._refusal(_read(claim), f"if it is dead, remove {claim}") from None
        try:
            if _read(path) != holder:
                raise self._refusal(_read(path))
            fresh = temporary_name(path)
            _create(fresh, _text(me))
            fresh.replace(path)
        finally:
            claim.unlink()
        return path

    def _silent(self, path: Path) -> bool:
        """True when the lock wasn't renewed for the time of a lease, by the clock of the file system where it can be
        asked.
        """
        probe = temporary_name(path)
        try:
            _create(probe, b"")
            present = probe.stat().st_mtime
            probe.unlink()
        except OSError:  # a reader of someone else's record
            present = time.time()
        try:
            return present - path.stat().st_mtime > self._lease_seconds
        except FileNotFoundError:
            return True

    def _renew(self, me: Holder, path: Path) -> None:
        """Runs in a thread of its own, so that a busy event loop doesn't look like a dead process."""
        while not self._stop.wait(self._lease_seconds / 4):
            with contextlib.suppress(
                OSError
            ):  # a network disk that is away comes back, or the lease runs out
                found = _read(path)
                if found == me:
                    os.utime(path)
                elif found is not None and not self._stop.is_set():
                    self._lost = found
                    self._on_loss()
                    return

    def _refusal(self, holder: Holder | None, hint: str | None = None) -> StoreError:
        who = str(holder) if holder else "another process"
        hint = hint or "wait for it, or stop it; a holder that died is replaced within a minute"
        return StoreError(
            f"{self.directory.name} is in use by {who}", hint=hint, path=str(self.directory), holder=who
        )


def _flock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError as exc:  # Windows
        raise OSError(errno.ENOSYS, "no flock") from exc
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _text(holder: Holder) -> bytes:
    return utf8(encode_record(holder) + "\n")


def _create(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        write_all(descriptor, content)
    finally:
        os.close(descriptor)


def _read(path: Path) -> Holder | None:
    """The holder that a file names; None when there is no file, or it is empty or half written."""
    try:
        tree: dict[str, Any] = json.loads(path.read_bytes().decode("utf-8"))
        return Holder(**tree)
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _boot() -> str | None:
    return _system_text(Path("/proc/sys/kernel/random/boot_id"))


def _process_started(pid: int) -> str | None:
    """Start of a process in ticks since boot, Linux only. The text before the last bracket may hold anything."""
    text = _system_text(Path(f"/proc/{pid}/stat"))
    return text.rpartition(")")[2].split()[19] if text else None


def _system_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _alive(pid: int) -> bool:
    """False if there certainly isn't such a process. Windows can't be asked: there `os.kill` would end it."""
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def waiting_lock(folder: Path) -> Iterator[None]:
    """Hold a lock that others hold for moments only: wait until it is free.

    Args:
        folder: the lock's own folder, which is made.

    Raises:
        StoreError: another process held it for too long, or the folder isn't writable.
    """
    lock = ExperimentLock(make_directory(folder))
    end = time.monotonic() + PATIENCE_SECONDS
    while not lock.held:
        try:
            lock.acquire()
        except StoreError as error:
            if "holder" not in error.facts or time.monotonic() > end:
                raise
            time.sleep(_PAUSE_SECONDS)
    with lock:
        yield
