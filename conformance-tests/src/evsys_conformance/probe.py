"""The process in which plugins are imported to see what that does; `evsys_conformance.budget` starts it.

For each plugin it writes a line when it begins and another when it is done, so that the last line names the one to blame when
the process ends early.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from evsys import Registry
from evsys.errors import PLUGIN_FAILURES, EvsysError
from evsys_conformance.offline import block_network

if TYPE_CHECKING:
    from evsys import PluginEntry

_SAID_AT_MOST = 2000


def main(task: Mapping[str, Any]) -> None:
    """Import the plugins that a task names."""
    registry = Registry(allow=[task["distribution"]])
    wanted = None if task["wanted"] is None else [tuple(key) for key in task["wanted"]]
    with Path(task["told"]).open("a", encoding="utf-8") as file:
        for entry in registry.entries():
            if wanted is not None and (entry.kind, entry.qualified) not in wanted:
                continue
            names = {"kind": entry.kind, "name": entry.qualified, "label": str(entry)}
            _tell(file, names)
            _tell(file, {**names, **_measure_import(registry, entry, frozenset(task["heavy"]))})


def _tell(file: Any, record: Mapping[str, Any]) -> None:
    file.write(json.dumps(record) + "\n")
    file.flush()


def _measure_import(registry: Registry, entry: PluginEntry, heavy: frozenset[str]) -> dict[str, Any]:
    before = set(sys.modules)
    with block_network() as tried:
        with _prints() as said:
            begin = _own_time()
            with suppress(*PLUGIN_FAILURES):  # a check of its own reports that
                import_module(entry.value.partition(":")[0].partition("[")[0].strip())
            seconds = _own_time() - begin
        with suppress(EvsysError):  # and of this
            registry.get(entry.kind, entry.qualified)
            if entry.kind not in {"plugin", "command"}:
                json.dumps(registry.schema(entry.kind, entry.qualified))
    brought = {name.partition(".")[0] for name in set(sys.modules) - before} & heavy
    return {
        "seconds": round(seconds, 3),
        "said": "".join(said)[:_SAID_AT_MOST],
        "network": list(dict.fromkeys(tried)),
        "heavy": sorted(brought),
    }


def _own_time() -> float:
    """Elapsed seconds, without those in which other processes had the cores, if Linux reports them."""
    try:
        waited = int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        waited = 0.0
    return time.perf_counter() - waited


@contextmanager
def _prints() -> Iterator[list[str]]:
    """Capture standard output and standard error at the level of file descriptors; the list is filled at the end."""
    said: list[str] = []
    with TemporaryFile() as file:
        kept = [(fd, os.dup(fd)) for fd in (1, 2)]
        sys.stdout.flush()
        sys.stderr.flush()
        for fd, _ in kept:
            os.dup2(file.fileno(), fd)
        try:
            yield said
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for fd, copy in kept:
                os.dup2(copy, fd)
                os.close(copy)
            file.seek(0)
            said.append(file.read().decode("utf-8", errors="replace"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
