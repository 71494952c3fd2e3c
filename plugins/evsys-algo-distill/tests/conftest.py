"""Tests here may be `async def`; `new_run` makes fresh runs on the mock backend."""

import pytest
from training_runs import Run, pytest_pyfunc_call  # noqa: F401


@pytest.fixture
def new_run(tmp_path):
    def make(name="run-s0", **fields):
        return Run.create(tmp_path / name, **fields)

    return make
