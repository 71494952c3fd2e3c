"""The folders of trials: which of them stay, what goes out of those, and what Harbor keeps in memory for each."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

import attrs

from evsys.types import RolloutLimits

__all__ = ["Folders", "concurrency_limit", "forget_loggers"]

_STUB = {
    "task.toml": 'schema_version = "1.4"\n',
    "instruction.md": "",
    "tests/test.sh": "#!/bin/sh\nexit 1\n",
}
"""A task without content: each trial brings its own instruction, and its verifier is the policy's. Harbor wants the script."""

_DESCRIPTORS = {False: 3, True: 12}
"""Files that a trial may have open: its log and sockets, or those of a sandbox and its commands too."""

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - names there are made by tempfile
_ROOM = 256 * 1024 * 1024
"""A trial makes a dozen small files and folders. On a disk that is half of what it costs, so they are made in memory where there
is a file system for that with so much room; a sandbox's logs may be large, and go to the disk.
"""

_REPLACED = b"[secret]"
_LARGEST_TEXT = 32 * 1024 * 1024


def concurrency_limit(wanted: int, *, sandboxed: bool) -> int:
    """How many trials run at once: what is wanted, or as many as this process may have files open for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft // _DESCRIPTORS[sandboxed]))


@attrs.define(kw_only=True, eq=False)
class Folders:
    """The folders of trials. `most` folders of good and `most` of failed rollouts are kept, if there is a place for
    them.

    `sandboxed`: they may get large. `secrets` are texts that no file may hold.
    """

    limits: RolloutLimits
    most: int
    sandboxed: bool = False
    secrets: Collection[str] = ()
    _temporary: Path | None = None
    _kept: dict[bool, int] = attrs.field(factory=lambda: {True: 0, False: 0})

    def open(self) -> None:
        """Make what is needed."""
        self._temporary = Path(
            tempfile.mkdtemp(prefix="evsys-harbor-", dir=None if self.sandboxed else _fast())
        )
        for name, text in _STUB.items():
            file = self.stub / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self.trials.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Remove what is left of what isn't kept."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def stub(self) -> Path:
        """The task of all rollouts that have no folder."""
        assert self._temporary is not None
        return self._temporary / "task"

    @property
    def trials(self) -> Path:
        """The folder of the trials' folders."""
        assert self._temporary is not None
        return self._temporary / "trials"

    def settle(self, name: str, *, failed: bool) -> Path | None:
        """Keep a trial's folder, without secrets, or remove it; where it is, or None."""
        folder = self.trials / name
        if not folder.is_dir():
            return None
        target = self.limits.directory
        wanted = target is not None and (failed or self.limits.keep == "all")
        if target is None or not wanted or self._kept[failed] >= self.most:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        self._kept[failed] += 1
        self._clean(folder)
        target.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(folder, target / name))

    def _clean(self, folder: Path) -> None:
        spelt = {form for secret in self.secrets if secret for form in (secret, json.dumps(secret)[1:-1])}
        words = sorted((form.encode() for form in spelt), key=len, reverse=True)
        for file in folder.rglob("*") if words else ():
            if file.is_symlink() or not file.is_file() or file.stat().st_size > _LARGEST_TEXT:
                continue
            content = file.read_bytes()
            clean = content
            for word in words:
                clean = clean.replace(word, _REPLACED)
            if clean != content:
                file.write_bytes(clean)


def _fast() -> Path | None:
    """A file system in memory that has room; None for the system's folder for temporary files."""
    try:
        usable = os.access(_IN_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(_IN_MEMORY).free >= _ROOM
    except OSError:
        return None
    return _IN_MEMORY if usable else None


def forget_loggers(names: Collection[str]) -> None:
    """Take the loggers of trials that ended out of Python's table, which never forgets one: Harbor makes eight for each."""
    manager = logging.Logger.manager
    gone = frozenset(names)
    with logging._lock:  # type: ignore[attr-defined]  # noqa: SLF001 - what guards the table has no public name
        table = manager.loggerDict
        dead = {key: table[key] for key in list(table) if not gone.isdisjoint(key.split("."))}
        for key, logger in dead.items():
            if isinstance(logger, logging.Logger):
                for handler in list(logger.handlers):
                    handler.close()
            del table[key]
        lost = {id(logger) for logger in dead.values()}
        for entry in table.values():
            if isinstance(entry, logging.PlaceHolder):
                for logger in [child for child in entry.loggerMap if id(child) in lost]:
                    del entry.loggerMap[logger]
