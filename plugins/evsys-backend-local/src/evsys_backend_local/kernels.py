"""Find the fastest OpenBLAS kernel of this machine. A process has one, so each is measured in a process of its own.

python -m evsys_backend_local.kernels    # the seconds of this process's kernel, as JSON
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from time import process_time

import attrs

from evsys.errors import BackendError
from evsys_runtime.blas_kernel import VARIABLE, keep_kernel

__all__ = ["KernelChoice", "choose_kernel"]

#: Shapes of SmolLM2-135M's products: (outputs, inputs).
_SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536))

#: Rows of a training micro-batch, and of a decoding step.
_ROWS = {"training": 256, "decoding": 8}

_ROUNDS = 2
_REPEATS = 10

#: A kernel has to be so much faster than OpenBLAS's own choice to replace it.
_MARGIN = 0.97

#: Most seconds of one process.
_PATIENCE = 120.0


@attrs.frozen(kw_only=True)
class KernelChoice:
    """The fastest kernel, None for OpenBLAS's own choice, with the CPU `seconds` of each; `default` is that choice."""

    kernel: str | None
    seconds: dict[str, float]
    path: Path


def candidates() -> tuple[str, ...]:
    """Kernels that may be faster than OpenBLAS's own choice: on a CPU with AVX-512, those of AVX2."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].split()
    except OSError:
        return ()
    return ("Haswell",) if platform.machine() == "x86_64" and "avx512f" in flags else ()


def choose_kernel() -> KernelChoice:
    """Measure the kernels, and keep the fastest for later commands. Takes a few seconds.

    Raises:
        BackendError: a process that measures failed.
        StoreError: the choice can't be written.
    """
    tried = (None, *candidates())
    found: dict[str | None, list[float]] = {kernel: [] for kernel in tried}
    for _ in range(_ROUNDS):  # in turn, so that a busy moment affects all
        for kernel in tried:
            found[kernel].append(_measure(kernel))
    seconds = {kernel: min(times) for kernel, times in found.items()}
    fastest = min(tried, key=lambda kernel: seconds[kernel])
    chosen = fastest if seconds[fastest] < _MARGIN * seconds[None] else None
    named = {kernel or "default": time for kernel, time in seconds.items()}
    return KernelChoice(kernel=chosen, seconds=named, path=keep_kernel(chosen, named))


def _measure(kernel: str | None) -> float:
    """CPU seconds of a process with this kernel for the products of a training micro-batch and of as many decoded tokens."""
    environment = {**os.environ, VARIABLE: kernel or "", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=True,
        )
        return float(json.loads(done.stdout)["seconds"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as exc:
        raise BackendError(
            f"the kernel {kernel or 'that OpenBLAS chooses'} can't be measured: {exc}"
        ) from exc


def _seconds() -> float:
    """CPU seconds of the products of one block in this process, as training and decoding compute them; the least of several."""
    import numpy as np

    from evsys_backend_local.engine.panels import Panels, pay_for

    generator = np.random.default_rng(0)
    total = 0.0
    for work, rows in _ROWS.items():
        for outputs, inputs in _SHAPES:
            weight = generator.standard_normal((outputs, inputs), np.float32)
            x = generator.standard_normal((rows, inputs), np.float32)
            out = np.empty((rows, outputs), np.float32)
            panels = Panels(weight) if work == "decoding" and pay_for(weight.nbytes) else None
            times = []
            for _ in range(_REPEATS):
                start = process_time()
                for _ in range(_ROWS["training"] // rows):
                    if panels is None:
                        np.matmul(x, weight.T, out=out)
                    else:
                        panels.multiply(x, out)
                times.append(process_time() - start)
            total += min(times)
    return total


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"seconds": _seconds()}))
