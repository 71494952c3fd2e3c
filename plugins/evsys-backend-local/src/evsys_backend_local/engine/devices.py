"""Which device computes: numpy on the CPU, or torch on a GPU. torch is looked for here alone, and imported where a GPU may be."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from evsys.errors import PluginLoadError

if TYPE_CHECKING:
    from evsys_backend_local.engine.arrays import Arrays

__all__ = ["Device", "computes_on_gpu", "require_device", "select"]

Device = Literal["auto", "cpu", "cuda"]

_DRIVERS = {"win32": "nvcuda.dll"}
_OR_CPU = "or leave `device` out: the CPU computes without torch"


def require_device(device: Device) -> None:
    """See that a device asked for by name is there.

    Raises:
        PluginLoadError: torch isn't installed, is broken, or finds no GPU.
    """
    if device != "cuda":
        return
    if find_spec("torch") is None:
        raise _refusal(
            "needs the package `torch` for a GPU, which isn't installed", f"pip install torch, {_OR_CPU}"
        )
    torch = _torch()
    if not torch.cuda.is_available():
        build = "is a build for the CPU alone" if torch.version.cuda is None else "finds no GPU here"
        hint = f"pip install --force-reinstall torch, in the build for your GPU's driver, {_OR_CPU}"
        raise _refusal(f"needs a GPU, and torch {torch.__version__} {build}", hint)


def computes_on_gpu(device: Device) -> bool:
    """Whether this choice means a GPU on this machine."""
    if device == "auto":
        return find_spec("torch") is not None and _has_driver() and bool(_torch().cuda.is_available())
    return device == "cuda"


def select(device: Device) -> Arrays:
    """The array table of a device.

    Raises:
        PluginLoadError: it isn't available.
    """
    require_device(device)
    if not computes_on_gpu(device):
        from evsys_backend_local.engine.arrays import NUMPY

        return NUMPY
    from evsys_backend_local.engine.torch_arrays import torch_arrays

    return torch_arrays(f"cuda:{_torch().cuda.current_device()}")


def _has_driver() -> bool:
    """Whether the driver of a GPU is installed: torch takes a second to import, which a machine without one is spared."""
    import ctypes

    try:
        ctypes.CDLL(_DRIVERS.get(sys.platform, "libcuda.so.1"))
    except OSError:
        return False
    return True


def _torch() -> Any:
    try:
        import torch
    except (ImportError, OSError) as exc:  # of its own libraries, on some systems
        raise _refusal(
            f"needs torch, which can't be imported: {exc}", "reinstall it, or choose `cpu`"
        ) from exc
    return torch


def _refusal(what: str, hint: str) -> PluginLoadError:
    return PluginLoadError(f"`device` of the local backend {what}", hint=hint, kind="backend")
