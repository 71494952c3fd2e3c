"""The cost and the side effects of importing the plugins of a distribution, measured in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["HEAVY", "QUICK_SECONDS", "Import", "imports_of"]

HEAVY = ("datasets", "harbor", "jax", "litellm", "pandas", "tinker", "torch", "transformers")
"""Packages that take seconds to import; they belong inside the function that needs them."""

QUICK_SECONDS = 1.5
"""How long importing a plugin may take, on a machine that has other things to do as well."""

type Key = tuple[str, str]
"""A kind and a qualified name."""


@dataclass(frozen=True)
class Import:
    """The effects of importing one plugin.

    `label` is its name in messages. `seconds` is the time its module takes beyond the imports of earlier plugins,
    `said` the printed text, `network` the requested addresses, `heavy` the packages of `HEAVY` that it or its
    schema brings in.
    """

    label: str
    seconds: float
    said: str
    network: tuple[str, ...]
    heavy: tuple[str, ...]


def imports_of(
    distribution: str, wanted: Collection[Key] | None = None, *, timeout_seconds: float = 60.0
) -> dict[Key, Import]:
    """Import plugins of a distribution in one process of their own, one after the other.

    If one takes too long, all are imported twice more, and the shorter of the first and the last time counts: by then modules are
    compiled, wherever they are installed, and the machine may be less busy.

    Args:
        distribution: its name.
        wanted: only these; None means all.
        timeout_seconds: how long all of them may take.

    Raises:
        RuntimeError: the process failed, as when a plugin ends it or doesn't end.
    """
    found = _measure_imports(distribution, wanted, timeout_seconds)
    if any(one.seconds > QUICK_SECONDS for one in found.values()):
        with tempfile.TemporaryDirectory(prefix="evsys-compiled-") as folder:
            for _ in range(2):
                again = _measure_imports(distribution, wanted, timeout_seconds, compiled=folder)
        found = {
            key: replace(one, seconds=min(one.seconds, again[key].seconds)) for key, one in found.items()
        }
    return found


def _measure_imports(
    distribution: str, wanted: Collection[Key] | None, timeout_seconds: float, *, compiled: str | None = None
) -> dict[Key, Import]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    if compiled is not None:
        environment |= {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryDirectory(prefix="evsys-imports-") as folder:
        told, output = Path(folder) / "told.jsonl", Path(folder) / "output.txt"
        task = {
            "distribution": distribution,
            "wanted": None if wanted is None else sorted(wanted),
            "heavy": HEAVY,
            "told": str(told),
        }
        # Warnings are the importing program's affair: what counts as said is what the plugin prints.
        command = [sys.executable, "-W", "ignore", "-m", "evsys_conformance.probe", json.dumps(task)]
        with output.open("wb") as file:
            try:
                code = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    timeout=timeout_seconds,
                    env=environment,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = None
        lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
        said = output.read_text(encoding="utf-8", errors="replace")
    records = [json.loads(line) for line in lines]
    if code != 0:
        at = f"importing {records[-1]['label']}" if records else f"looking at the imports of {distribution}"
        how = f"took longer than {timeout_seconds:g} s" if code is None else f"ended the process with {code}"
        raise RuntimeError(f"{at} {how}" + (f":\n{said.rstrip()}" if said.strip() else ""))
    return {
        (one["kind"], one["name"]): Import(
            label=one["label"],
            seconds=one["seconds"],
            said=one["said"],
            network=tuple(one["network"]),
            heavy=tuple(one["heavy"]),
        )
        for one in records
        if "seconds" in one
    }
