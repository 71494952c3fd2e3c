"""The data store `evsys`: datasets and benchmarks of a team's server, by ID or name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.errors import ConfigError, StoreError
from evsys.types import StoredVersion
from evsys_dashboard.data.client import DataClient
from evsys_dashboard.data.progress import progress
from evsys_dashboard.data.shapes import Kind, ShownVersion
from evsys_dashboard.remote import KEY, PROJECT, URL, Remote
from evsys_runtime import current_scope

__all__ = ["EvsysStore", "EvsysStoreConfig"]

type Row = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class EvsysStoreConfig:
    """Parameters of `evsys`. The key is only ever read from the environment."""

    url: str | None = option(None, f"address of the server; by default that in {URL}", min_len=1)
    key_env: str = option(KEY, "environment variable that holds the key", min_len=1)
    project: str | None = option(
        None,
        f"project of the server; by default that in {PROJECT}, or the one that the key is for",
        min_len=1,
    )


class EvsysStore:
    """Versions that never change, on a team's server. A name is the latest version of it, an ID is one version."""

    name: ClassVar[str] = "evsys"
    Config = EvsysStoreConfig

    def __init__(self, **fields: object) -> None:
        self.config = self.Config(**fields)  # type: ignore[arg-type]  # checked by the class

    async def resolve(self, ref: str, kind: Kind) -> StoredVersion:
        """The version of an ID, or the latest one of a name.

        Raises:
            StoreError: there is none, the server can't be reached, or no server and key are set.
        """
        return _version_of(await _in_background(self._show, ref, kind))

    async def pull_version(self, version: StoredVersion) -> Iterable[Row]:
        """The rows of a version, streamed.

        Raises:
            StoreError: the server can't be reached, or the key may not read a test set.
        """
        shown = await _in_background(self._show, version.id, version.kind)
        return self._rows(shown)

    async def pull(self, ref: str) -> Iterable[Row]:
        """The rows of a dataset, else of a benchmark.

        Raises:
            StoreError: there is neither, or the server can't be reached.
        """
        try:
            shown = await _in_background(self._show, ref, "datasets")
        except StoreError as exc:
            if exc.facts.get("status") != 404:
                raise
            shown = await _in_background(self._show, ref, "benchmarks")
        return self._rows(shown)

    def _show(self, ref: str, kind: Kind) -> ShownVersion:
        client = self._client()
        try:
            return client.show(kind, ref)
        except ConfigError as exc:
            raise StoreError(str(exc), reachable=True) from exc
        finally:
            client.close()

    def _rows(self, shown: ShownVersion) -> Iterator[Row]:
        folder = current_scope().project_root / ".evsys" / "cache" / "downloads"
        return self._read(self._client(), shown, folder)

    def _read(self, client: DataClient, shown: ShownVersion, folder: Any) -> Iterator[Row]:
        try:
            with progress(f"pulling {shown.version.id}", sys.stderr) as tell:
                for line in client.pull(shown, folder, tell=tell):
                    yield json.loads(line)
        finally:
            client.close()

    def _client(self) -> DataClient:
        try:
            remote = Remote.from_environment(
                self.config.url, self.config.project, key_env=self.config.key_env
            )
        except ConfigError as exc:
            raise StoreError(f"data store 'evsys': {exc}", reachable=False) from exc
        return DataClient(remote)


async def _in_background(show: Callable[[str, Kind], ShownVersion], ref: str, kind: Kind) -> ShownVersion:
    from evsys_runtime import in_background  # `evsys list` imports this module, and no asyncio

    return await in_background(show, ref, kind)


def _version_of(shown: ShownVersion) -> StoredVersion:
    version = shown.version
    return StoredVersion(
        id=version.id,
        kind=version.kind,
        name=version.name,
        content_hash=version.content_hash,
        split=version.split,
        reads=shown.reads,
    )
