"""Tests here may be `async def`; `run` is a fresh run on the mock backend."""

import pytest
from training_runs import Run, pytest_pyfunc_call  # noqa: F401


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run-s0")


@pytest.fixture
def new_run(tmp_path):
    def make(name, **fields):
        return Run.create(tmp_path / name, **fields)

    return make
