"""The provenance of a result: versions, platform, and the state of the project's repository."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from evsys._plugins.scan import scan
from evsys_record.hashing import digest_bytes

__all__ = ["collect", "evsys_distributions", "git_state"]

_LIBRARIES = ("attrs", "cattrs", "jinja2", "numpy", "pluggy", "ruamel.yaml", "structlog", "tokenizers")
_VARIABLES = (
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
)
_GIT_SECONDS = 20.0


def collect(project_root: Path) -> dict[str, Any]:
    """The provenance of a launch. Unknown values are null.

    Backends add their own facts, such as the BLAS that numpy was built with.

    Args:
        project_root: the folder whose repository counts.
    """
    return {
        "evsys": evsys_distributions(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "python": {"version": platform.python_version(), "implementation": sys.implementation.name},
        "platform": {
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "environment": {name: os.environ.get(name) for name in _VARIABLES},
        "git": git_state(project_root),
    }


def evsys_distributions() -> dict[str, str]:
    """Version of every installed distribution that is part of evsys or has plugins for it."""
    # The scan knows a distribution by the name of its folder, even one of which an uninstall left only that.
    found = {entry.distribution: entry.version for entry in scan().entries}
    for name in ("evsys-core", "evsys-runtime", "evsys-sdk", "evsys-cli", "evsys-conformance"):
        version = _version(name)
        if version is not None:
            found[name] = version
    return dict(sorted(found.items()))


def git_state(folder: Path) -> dict[str, Any] | None:
    """Revision, branch and dirtiness of the repository around `folder`; None outside one, or without git.

    The record's own folder doesn't count as a change. `changes` is the hash of the differences from the revision in
    tracked files, so that two launches from the same uncommitted state can be recognised.
    """
    revision = _git(folder, "rev-parse", "--verify", "HEAD")
    if revision is None:
        return None
    inside = ("--", ":/", ":(top,exclude,glob)**/.evsys/**")
    status = _git(folder, "status", "--porcelain", *inside)
    difference = _git(folder, "diff", "HEAD", "--no-ext-diff", *inside)
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD")
    return {
        "revision": revision.decode().strip(),
        "branch": branch.decode("utf-8", "replace").strip() if branch else None,
        "dirty": bool(status.strip()) if status is not None else None,
        "changes": digest_bytes(difference) if difference else None,
    }


def _git(folder: Path, *arguments: str) -> bytes | None:
    """The output of git; None if it isn't installed, isn't run inside a repository, or takes too long."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            env=environment,
            timeout=_GIT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
