import gc
import os
import shutil
import weakref
from pathlib import Path

import numpy as np

from evsys_backend_local.models.resolve import shared_base


def test_who_holds_a_model_shares_it_and_the_last_one_frees_it(families: Path, tmp_path: Path):
    folder = tmp_path / "model"
    shutil.copytree(families / "qwen2", folder)
    one, other = shared_base(folder), shared_base(folder)
    assert one is other
    last = weakref.ref(one)
    del one, other
    gc.collect()
    assert last() is None


def test_files_that_changed_are_another_model(families: Path, tmp_path: Path):
    folder = tmp_path / "model"
    shutil.copytree(families / "qwen2", folder)
    before = shared_base(folder)
    path = folder / "model.safetensors"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    after = shared_base(folder)
    assert after is not before
    np.testing.assert_array_equal(after.params.flat, before.params.flat)


def test_the_built_in_model_is_shared_too():
    assert shared_base("evsys/tiny") is shared_base("evsys/tiny")
