"""The OpenBLAS kernel of a process: that of a resumed experiment, else the one measured as the fastest on this machine.

OpenBLAS reads `OPENBLAS_CORETYPE` while numpy loads, so a command calls `use_kernel` before it imports anything that needs numpy.
Kernels differ in the last bits of their results, so a record holds the variable.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from evsys.errors import StoreError
from evsys_record import make_directory
from evsys_record.files import read_json, write_json
from evsys_runtime.data.user_cache import cache_root

__all__ = ["VARIABLE", "keep_kernel", "this_machine", "use_kernel"]

VARIABLE = "OPENBLAS_CORETYPE"

_NAME = "blas-kernel.json"


def use_kernel(experiment: Path | None = None) -> None:
    """Set `OPENBLAS_CORETYPE`, unless it is set, even to nothing, or numpy is loaded.

    Args:
        experiment: the folder of a resumed experiment, whose kernel is kept.
    """
    if VARIABLE in os.environ or "numpy" in sys.modules:
        return
    kernel = _measure_kernel() if experiment is None else _read_kernel(experiment)
    if kernel is not None:
        os.environ[VARIABLE] = kernel


def keep_kernel(kernel: str | None, seconds: dict[str, float]) -> Path:
    """Write the fastest kernel of this machine, None for OpenBLAS's own choice, to the user's cache folder.

    Args:
        kernel: a value of `OPENBLAS_CORETYPE`.
        seconds: those measured, by kernel.
    """
    path = make_directory(cache_root()) / _NAME
    write_json(path, {**this_machine(), "kernel": kernel, "seconds": seconds})
    return path


def this_machine() -> dict[str, str]:
    """The CPU and the version of numpy, which brings its OpenBLAS: a measurement is valid for these."""
    return {"cpu": " ".join(_cpu()), "numpy": metadata.version("numpy")}


def _cpu() -> Iterator[str]:
    yield platform.machine()
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
        known = dict(line.partition(":")[::2] for line in first.splitlines())
        values = {key.strip(): value.strip() for key, value in known.items()}
        yield from (values[key] for key in ("model name", "cpu family", "model", "stepping") if key in values)
        return
    yield platform.processor()


def _measure_kernel() -> str | None:
    """The kernel measured on this machine with this numpy; None if none was, or OpenBLAS's own choice is the fastest."""
    found = _read(cache_root() / _NAME)
    if any(found.get(key) != value for key, value in this_machine().items()):
        return None
    kernel = found.get("kernel")
    return kernel if isinstance(kernel, str) else None


def _read_kernel(experiment: Path) -> str | None:
    environment: Any = _read(experiment / "experiment.json")
    for key in ("provenance", "environment", VARIABLE):
        environment = environment.get(key) if isinstance(environment, dict) else None
    return environment if isinstance(environment, str) else None


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty if it isn't there or can't be read: then nothing is known of kernels."""
    try:
        return read_json(path)
    except StoreError:
        return {}
