"""Whether sandboxes can be made on this machine, and what still runs on it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from evsys_rollouts_harbor.bubblewrap import missing_programs

__all__ = ["needs_sandbox", "running"]


def _reason() -> str | None:
    if lacking := missing_programs():
        return f"needs {', '.join(lacking)}"
    command = ["bwrap", "--unshare-user", "--unshare-pid", "--bind", "/", "/", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"this machine forbids sandboxes: {tried.stderr.strip()}"


_REASON = _reason()
needs_sandbox = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


def running(mark: str) -> list[str]:
    """Command lines of processes of this machine that hold a mark."""
    lines = []
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if mark in text and entry.name != str(os.getpid()):
            lines.append(text)
    return lines
