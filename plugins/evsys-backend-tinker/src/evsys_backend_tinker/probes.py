"""Missing features that a probe found, stored by server, so that later runs avoid them."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evsys_record import make_directory, write_atomic
from evsys_runtime.data.user_cache import cache_root

__all__ = ["keep", "lacking"]

_FORMAT = 1
DAYS = 30
"""After so many days a server may have learnt what it lacked."""


def keep(base_url: str, lacks: Iterable[str], *, now: dt.datetime | None = None) -> Path:
    """Note the capabilities that a server lacks.

    Raises:
        StoreError: the note can't be written.
    """
    path = _path(base_url)
    make_directory(path.parent)
    tree = {
        "format": _FORMAT,
        "server": base_url,
        "probed": (now or dt.datetime.now(dt.UTC)).isoformat(),
        "lacks": sorted(lacks),
    }
    write_atomic(path, json.dumps(tree, indent=2) + "\n")
    return path


def lacking(base_url: str, *, now: dt.datetime | None = None) -> frozenset[str]:
    """The capabilities that a server was found to lack; nothing where it wasn't probed of late."""
    tree = _read(_path(base_url))
    try:
        age = (now or dt.datetime.now(dt.UTC)) - dt.datetime.fromisoformat(str(tree.get("probed")))
    except ValueError:
        return frozenset()
    if tree.get("format") != _FORMAT or tree.get("server") != base_url or age > dt.timedelta(days=DAYS):
        return frozenset()
    return frozenset(str(one) for one in tree.get("lacks", ()))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a note that can't be read is one that isn't there
        return {}
    return tree if isinstance(tree, dict) else {}


def _path(base_url: str) -> Path:
    return cache_root() / "tinker" / "probes" / f"{hashlib.sha256(base_url.encode()).hexdigest()[:24]}.json"
