"""`evsys serve` in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["served"]


@contextmanager
def served(folder: Path, backend: str, *arguments: str) -> Iterator[tuple[str, int]]:
    """The address of a server, which keeps its files in `folder`, and its process's id."""
    command = [
        *(sys.executable, "-m", "evsys_cli.main", "serve", "--backend", backend, *arguments),
        *("--port", "0", "--directory", str(folder), "--json", "--quiet", "--no-key"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line, "the server didn't start"
            ready = json.loads(line)
            yield ready["base_url"], ready["pid"]
        finally:
            process.terminate()
