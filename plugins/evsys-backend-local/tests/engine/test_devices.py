"""The choice of what computes, without torch and with stand-ins for it."""

import importlib.machinery
import sys
from types import ModuleType, SimpleNamespace

import pytest

from evsys import Registry
from evsys.errors import ConfigError, PluginLoadError
from evsys_backend_local import LocalBackend
from evsys_backend_local.engine import devices
from evsys_backend_local.engine.arrays import NUMPY


@pytest.fixture
def install(monkeypatch):
    """Puts a module in torch's place, and says whether a GPU's driver is there; `None` is no torch."""

    def install(torch, *, driver):
        monkeypatch.setattr(
            devices, "find_spec", lambda name: importlib.machinery.ModuleSpec(name, None) if torch else None
        )
        monkeypatch.setattr(devices, "_has_driver", lambda: driver)
        monkeypatch.setitem(sys.modules, "torch", torch)

    return install


def torch_with(gpu, *, build="13.0"):
    torch = ModuleType("torch")
    torch.__version__ = "9.9"
    torch.version = SimpleNamespace(cuda=build)
    torch.cuda = SimpleNamespace(is_available=lambda: gpu)
    return torch


def broken():
    """What is found and can't be imported."""
    torch = ModuleType("torch")
    torch.__getattr__ = lambda name: pytest.fail(f"torch was asked for {name}")
    return torch


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_torch_numpy_computes(install, device):
    install(None, driver=True)
    assert devices.select(device) is NUMPY


def test_torch_is_not_looked_at_where_there_is_no_driver(install):
    install(broken(), driver=False)
    assert devices.select("auto") is NUMPY


def test_torch_is_not_looked_at_where_the_cpu_is_asked_for(install):
    install(broken(), driver=True)
    assert devices.select("cpu") is NUMPY


def test_numpy_computes_where_torch_sees_no_gpu(install):
    install(torch_with(gpu=False), driver=True)
    assert devices.select("auto") is NUMPY
    assert "deterministic" in LocalBackend().capabilities


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_promises_no_bits(install, device):
    install(torch_with(gpu=True), driver=True)
    assert LocalBackend.capabilities - LocalBackend(device=device).capabilities == {"deterministic"}


@pytest.mark.parametrize(
    ("torch", "what"),
    [
        (None, "isn't installed; pip install torch"),
        (torch_with(gpu=False), "torch 9.9 finds no GPU here"),
        (torch_with(gpu=False, build=None), "torch 9.9 is a build for the CPU alone"),
    ],
    ids=["no torch", "no gpu", "cpu build"],
)
def test_a_gpu_that_is_not_there_is_one_error_that_says_what_to_install(install, torch, what):
    install(torch, driver=False)
    with pytest.raises(PluginLoadError, match=what) as caught:
        Registry().build("backend", "local", {"device": "cuda"})
    assert "pip install" in str(caught.value)
    with pytest.raises(PluginLoadError, match=what):
        devices.select("cuda")


def test_a_torch_that_cannot_be_imported_is_not_passed_over(install, monkeypatch):
    install(broken(), driver=True)
    monkeypatch.setitem(sys.modules, "torch", None)  # how Python marks what can't be imported
    with pytest.raises(PluginLoadError, match="can't be imported"):
        devices.select("auto")


def test_an_unknown_device_is_a_problem_of_the_file():
    with pytest.raises(ConfigError, match=r"\$\.device: expected 'auto' or 'cpu' or 'cuda'"):
        Registry().build("backend", "local", {"device": "gpu"})


def test_a_driver_is_looked_for_by_its_library(monkeypatch):
    monkeypatch.setattr(sys, "platform", "none")
    monkeypatch.setattr("ctypes.CDLL", lambda name: name)
    assert devices._has_driver()

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    assert not devices._has_driver()
