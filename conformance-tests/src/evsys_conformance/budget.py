"""The import budget: what loading the plugins of a distribution and printing their schemas brings in."""

from __future__ import annotations

import json
import os
import subprocess
import sys

__all__ = ["HEAVY", "heavy_imports"]

HEAVY = ("datasets", "harbor", "jax", "litellm", "pandas", "tinker", "torch", "transformers")
"""Packages that take seconds to import; they belong inside the function that needs them."""

_PROBE = """
import json, sys
from evsys import Registry
from evsys.errors import EvsysError
distribution, heavy = sys.argv[1], set(sys.argv[2:])
registry, found = Registry(allow=[distribution]), {}
for entry in registry.entries():
    before = set(sys.modules)
    try:
        registry.get(entry.kind, entry.qualified)
        if entry.kind not in {"plugin", "command"}:
            json.dumps(registry.schema(entry.kind, entry.qualified))
    except EvsysError:
        pass  # a check of its own tells of that
    brought = {name.partition(".")[0] for name in set(sys.modules) - before} & heavy
    if brought:
        found[str(entry)] = sorted(brought)
print(json.dumps(found))
"""


def heavy_imports(distribution: str, *, timeout_seconds: float = 60.0) -> dict[str, list[str]]:
    """Heavy packages by the plugin that brings them, found in one process of its own for the distribution.

    Raises:
        RuntimeError: the process failed, as when a plugin ends it.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, distribution, *HEAVY],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout_seconds,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"loading the plugins of {distribution} ended the process:\n{done.stderr}")
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found
