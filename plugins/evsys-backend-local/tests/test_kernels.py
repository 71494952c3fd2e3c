import json

import pytest

from evsys.errors import BackendError
from evsys_backend_local import kernels
from evsys_backend_local.kernels import choose_kernel


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "candidates", lambda: ("Haswell",))


@pytest.mark.parametrize(
    ("default", "other", "chosen"), [(1.0, 0.8, "Haswell"), (1.0, 1.2, None), (1.0, 0.99, None)]
)
def test_a_kernel_that_is_clearly_faster_replaces_the_default(monkeypatch, default, other, chosen):
    monkeypatch.setattr(kernels, "_measure", {None: default, "Haswell": other}.__getitem__)
    choice = choose_kernel()
    assert (choice.kernel, choice.seconds) == (chosen, {"default": default, "Haswell": other})
    assert json.loads(choice.path.read_text(encoding="utf-8"))["kernel"] == chosen


def test_the_best_of_several_processes_counts(monkeypatch):
    seconds = {None: iter([1.0, 1.0]), "Haswell": iter([5.0, 0.5])}
    monkeypatch.setattr(kernels, "_measure", lambda kernel: next(seconds[kernel]))
    assert choose_kernel().kernel == "Haswell"


def test_a_process_measures_its_products():
    assert kernels._measure(None) > 0


def test_a_process_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(kernels.sys, "executable", "/nowhere/python")
    with pytest.raises(BackendError, match="the kernel Haswell can't be measured"):
        kernels._measure("Haswell")
