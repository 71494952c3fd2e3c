"""Checkpoints on disk: a folder each, with a manifest written last. The manifests are the index.

A folder is filled under a temporary name and then renamed, so what is listed is whole, also after a kill or on a
full disk. A new server on the same folder finds what was saved.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from evsys import structure, unstructure
from evsys.errors import EvsysError
from evsys.types import Checkpoint, ModelSpec
from evsys_record import make_directory
from evsys_record.files import (
    read_json,
    storing,
    sweep,
    sync_directory,
    sync_file,
    temporary_name,
    write_json,
)
from evsys_server.errors import RefusedError

if TYPE_CHECKING:
    from evsys.protocols import Log, TrainingClient

__all__ = ["SCHEME", "CheckpointStore", "Kind", "Saved"]

type Kind = Literal["weights", "sampler_weights"]

SCHEME = "tinker://"
MANIFEST = "checkpoint.json"
LEAST_TTL, MOST_TTL = 3600, 10 * 366 * 24 * 3600
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@attrs.frozen(kw_only=True)
class Saved:
    """The contents of a manifest.

    Attributes:
        path: its address, `tinker://RUN/KIND/NAME`.
        run: the trained model.
        kind: `weights` with the optimiser, to continue, or `sampler_weights`.
        name: among those of the run.
        spec: the whole model spec, so a resume forgets nothing.
        seed: of the model.
        step: optimiser steps behind it.
        state: what the backend needs to find its part again.
        created: seconds since 1970.
        expires: seconds since 1970; None never.
        size_bytes: of its files.
        user_metadata: the client's own words.
        session: it is deleted with this session; None stays.
        folder: its path, relative to the store.
    """

    path: str
    run: str
    kind: Kind
    name: str
    spec: ModelSpec
    seed: int
    step: int
    state: Mapping[str, Any]
    created: float
    expires: float | None = None
    size_bytes: int = 0
    user_metadata: Mapping[str, str] = attrs.field(factory=dict)
    session: str | None = None
    folder: str = ""


class CheckpointStore:
    """The checkpoints of a server.

    Args:
        directory: of all checkpoints.
        clock: seconds since 1970.
        log: of folders skipped because of an unreadable manifest.
    """

    def __init__(
        self, directory: Path, *, clock: Callable[[], float] = time.time, log: Log | None = None
    ) -> None:
        self._root = make_directory(directory)
        self._clock = clock
        self._saved: dict[str, Saved] = {}
        for folder in self._root.glob("*/*/"):
            sweep(folder)
        for manifest in self._root.glob("*/*/*/" + MANIFEST):
            try:
                saved = _read(manifest, str(manifest.parent.relative_to(self._root)))
            except EvsysError as exc:  # the folder stays, for whoever knows what became of it
                if log is not None:
                    log.warning("checkpoint.left_out", path=str(manifest), reason=exc.message)
                continue
            self._take(saved, manifest.parent)

    def _take(self, saved: Saved, folder: Path) -> None:
        """Take in what a server before this one left: of two with one address, the later."""
        other = self._saved.get(saved.path)
        if saved.session is not None or (other is not None and other.created >= saved.created):
            shutil.rmtree(folder)  # its session ended with the server, or it was being replaced
            return
        if other is not None:
            shutil.rmtree(self._root / other.folder)
        self._saved[saved.path] = saved

    def all(self) -> list[Saved]:
        """All checkpoints, newest first."""
        self.expire()
        return sorted(
            (saved for saved in self._saved.values() if saved.session is None),
            key=lambda saved: (-saved.created, saved.path),
        )

    def find(self, path: str) -> Saved:
        """A checkpoint by its address.

        Raises:
            RefusedError: there is none, or not any more.
        """
        saved = self._saved.get(path)
        if saved is not None and saved.expires is not None and saved.expires <= self._clock():
            self._remove(saved)
            saved = None
        if saved is None:
            raise RefusedError(
                404, f"there is no checkpoint {path!r} here; it may have expired or been deleted"
            )
        return saved

    def restorable(self, saved: Saved, *, with_optimizer: bool) -> Checkpoint:
        """A checkpoint as backends take it."""
        return Checkpoint(
            step=saved.step,
            directory=self._root / saved.folder,
            state=saved.state,
            with_optimizer=with_optimizer,
        )

    def address(self, run: str, kind: Kind, name: str) -> str:
        """The address of a checkpoint.

        Raises:
            RefusedError: the name can't be one.
        """
        if not _NAME.fullmatch(name):
            raise RefusedError(
                400, f"{name!r} can't name a checkpoint: letters, digits, '.', '_' and '-' may"
            )
        return f"{SCHEME}{run}/{kind}/{name}"

    async def save(
        self, draft: Saved, client: TrainingClient, *, overwrite: bool = False, durable: bool = True
    ) -> Saved:
        """Save a model.

        Args:
            draft: what the manifest will say; state and size are filled in here.
            client: saves its weights.
            overwrite: replace what has the same address.
            durable: sync to the disk.

        Raises:
            RefusedError: the name is taken.
            StoreError: it can't be written; what was there before still is.
        """
        if draft.path in self._saved and not overwrite:
            raise RefusedError(
                409, f"{draft.path} exists already; choose another name, or save with overwrite=True"
            )
        before = self._saved.get(draft.path)
        unique = (
            f"{draft.name}.{secrets.token_hex(4)}"  # so that a replacement has a folder alongside the old one
        )
        folder = self._root / draft.run.replace(":", ".") / draft.kind / unique
        make_directory(folder.parent)
        temporary = temporary_name(folder)
        try:
            with storing(temporary):
                temporary.mkdir()
                state = dict(await _to_its_end(client.save_state(temporary)))
            saved = attrs.evolve(
                draft,
                state=state,
                created=self._clock(),
                size_bytes=sum(path.stat().st_size for path in temporary.rglob("*") if path.is_file()),
                folder=str(folder.relative_to(self._root)),
            )
            await _to_its_end(asyncio.to_thread(_seal, temporary, _manifest(saved), durable=durable))
            with storing(folder):
                temporary.rename(folder)
                if durable:
                    sync_directory(folder.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # gone already where all went well
        self._saved[saved.path] = saved
        if before is not None:
            self._discard(before)
        return saved

    def set_ttl(self, path: str, ttl_seconds: int | None) -> Saved:
        """Let it expire so many seconds from now, or never.

        Raises:
            RefusedError: no such checkpoint, or a time that isn't allowed.
        """
        saved = attrs.evolve(self.find(path), expires=self.expiry(ttl_seconds))
        write_json(self._root / saved.folder / MANIFEST, _manifest(saved))
        self._saved[path] = saved
        return saved

    def expiry(self, ttl_seconds: int | None) -> float | None:
        """When what is saved now with this time to live expires.

        Raises:
            RefusedError: a time that isn't allowed.
        """
        if ttl_seconds is None:
            return None
        if not LEAST_TTL <= ttl_seconds <= MOST_TTL:
            raise RefusedError(400, f"ttl_seconds must be from {LEAST_TTL} to {MOST_TTL}, got {ttl_seconds}")
        return self._clock() + ttl_seconds

    def delete(self, path: str) -> None:
        """Remove a checkpoint.

        Raises:
            RefusedError: there is none.
        """
        self._remove(self.find(path))

    def expire(self) -> None:
        """Remove what is over."""
        now = self._clock()
        for saved in [s for s in self._saved.values() if s.expires is not None and s.expires <= now]:
            self._remove(saved)

    def end_session(self, session: str) -> None:
        """Remove what was saved for a session alone."""
        for saved in [s for s in self._saved.values() if s.session == session]:
            self._remove(saved)

    def _remove(self, saved: Saved) -> None:
        del self._saved[saved.path]
        self._discard(saved)

    def _discard(self, saved: Saved) -> None:
        folder = self._root / saved.folder
        gone = temporary_name(folder)
        with contextlib.suppress(FileNotFoundError):  # someone cleaned up by hand
            folder.rename(gone)  # in one go, so that half a checkpoint is never found
        shutil.rmtree(gone, ignore_errors=True)


async def _to_its_end[T](writing: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine. A cancelled caller waits for its end: a thread that continues writing would bring
    back removed files.
    """
    task = asyncio.get_running_loop().create_task(writing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # nothing waits for it any more
        raise


def _seal(folder: Path, manifest: Mapping[str, Any], *, durable: bool) -> None:
    """Write the manifest, last. If it is to be durable, what a backend wrote survives a power cut too."""
    if durable:
        with storing(folder):
            for path in folder.rglob("*"):
                if path.is_file():
                    sync_file(path)
    write_json(folder / MANIFEST, manifest)


def _read(manifest: Path, folder: str) -> Saved:
    fields = read_json(manifest)
    fields.pop("format")
    return structure(Saved, {**fields, "folder": folder})


def _manifest(saved: Saved) -> dict[str, Any]:
    fields = attrs.asdict(saved, recurse=False)
    return {**fields, "spec": unstructure(saved.spec)}
