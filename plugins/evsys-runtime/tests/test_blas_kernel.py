import json
import os
import sys
from pathlib import Path

import pytest

from evsys_runtime import blas_kernel
from evsys_runtime.blas_kernel import VARIABLE, keep_kernel, use_kernel


@pytest.fixture(autouse=True)
def process_without_numpy(monkeypatch, tmp_path):
    """A process that has no kernel yet, on a machine whose cache is empty."""
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)  # restored afterwards, even if it wasn't set
    monkeypatch.delitem(sys.modules, "numpy", raising=False)


def recorded(folder: Path, environment: dict) -> Path:
    folder.mkdir()
    facts = {"format": 1, "provenance": {"environment": environment}}
    (folder / "experiment.json").write_text(json.dumps(facts), encoding="utf-8")
    return folder


def kernel() -> str | None:
    return os.environ.get(VARIABLE)


def test_without_a_measurement_openblas_chooses():
    use_kernel()
    assert kernel() is None


def test_the_measured_kernel_is_used():
    keep_kernel("Haswell", {"default": 2.0, "Haswell": 1.0})
    use_kernel()
    assert kernel() == "Haswell"


def test_if_the_default_is_the_fastest_nothing_is_set():
    keep_kernel(None, {"default": 1.0, "Haswell": 2.0})
    use_kernel()
    assert kernel() is None


@pytest.mark.parametrize("value", ["SkylakeX", ""])
def test_a_variable_that_is_set_takes_precedence(monkeypatch, value):
    keep_kernel("Haswell", {})
    monkeypatch.setenv(VARIABLE, value)
    use_kernel()
    assert kernel() == value


def test_a_process_that_has_its_kernel_already_is_left_alone(monkeypatch):
    keep_kernel("Haswell", {})
    monkeypatch.setitem(sys.modules, "numpy", object())
    use_kernel()
    assert kernel() is None


@pytest.mark.parametrize("key", ["cpu", "numpy"])
def test_a_measurement_of_another_cpu_or_numpy_is_not_used(monkeypatch, key):
    keep_kernel("Haswell", {})
    now = blas_kernel.this_machine()
    monkeypatch.setattr(blas_kernel, "this_machine", lambda: {**now, key: "another"})
    use_kernel()
    assert kernel() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1, "kernel": 7}'])
def test_a_damaged_file_counts_as_no_measurement(text):
    keep_kernel("Haswell", {}).write_text(text, encoding="utf-8")
    use_kernel()
    assert kernel() is None


@pytest.mark.parametrize(
    ("environment", "used"), [({VARIABLE: "Zen"}, "Zen"), ({VARIABLE: None}, None), ({}, None)]
)
def test_a_resumed_experiment_keeps_its_kernel(tmp_path, environment, used):
    keep_kernel("Haswell", {})
    use_kernel(recorded(tmp_path / "experiment", environment))
    assert kernel() == used


def test_an_experiment_whose_record_is_unreadable_keeps_the_default(tmp_path):
    keep_kernel("Haswell", {})
    use_kernel(tmp_path / "nothing")
    assert kernel() is None
