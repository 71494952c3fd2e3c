"""Verdicts paid for once: kept by the content of the question, the model and the number of the vote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from evsys_record import make_directory, write_atomic
from evsys_runtime.data.user_cache import cache_root

__all__ = ["JudgeCache"]

FORMAT = 1
MOST_IN_A_FOLDER = 256
"""Beyond so many the oldest quarter of a folder goes; there are 256 folders."""


class JudgeCache:
    """Verdicts in the user's cache folder, one file each. Several processes may use it at once."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = (cache_root() if root is None else root) / "judgements"

    def get(self, key: str) -> str | None:
        """The stored answer of the judge; None if it wasn't asked. An unreadable or incomplete file is ignored."""
        try:
            kept = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        usable = isinstance(kept, dict) and kept.get("format") == FORMAT and isinstance(kept.get("said"), str)
        return kept["said"] if usable else None

    def put(self, key: str, said: str, facts: Mapping[str, Any]) -> None:
        """Keep what the judge said, with facts for people who look into the file.

        Raises:
            StoreError: it can't be written.
        """
        path = self._path(key)
        kept = {"format": FORMAT, "said": said, **facts}
        make_directory(path.parent)
        write_atomic(path, json.dumps(kept, ensure_ascii=False) + "\n")
        _make_room(path.parent)

    def _path(self, key: str) -> Path:
        name = key.removeprefix("sha256:")
        return self._root / name[:2] / f"{name[2:]}.json"


def _make_room(folder: Path) -> None:
    files = list(folder.glob("*.json"))
    if len(files) <= MOST_IN_A_FOLDER:
        return
    for path in sorted(files, key=_write_time)[: MOST_IN_A_FOLDER // 4]:
        path.unlink(missing_ok=True)


def _write_time(path: Path) -> float:
    """When a file was written; one that another process has just removed counts as oldest."""
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
