"""Commands choose the OpenBLAS kernel before anything imports numpy, which is when it takes effect."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import os
import sys

from evsys_cli.main import main
from evsys_runtime import blas_kernel

def use_kernel(experiment=None):
    print("numpy" in sys.modules, experiment and experiment.name, flush=True)
    os._exit(7)

blas_kernel.use_kernel = use_kernel
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("arguments", "experiment"),
    [
        (("run", "config.yaml"), None),
        (("resume", ".evsys/experiments/one"), "one"),
        (("eval", "evsys/tiny", "tasks.jsonl"), None),
        (("serve", "--directory", "served", "--quiet"), None),
    ],
)
def test_the_kernel_is_chosen_before_numpy_is_loaded(tmp_path, arguments, experiment):
    folder = tmp_path / ".evsys/experiments/one"
    folder.mkdir(parents=True)
    (folder / "experiment.json").write_text(json.dumps({"format": 1}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=tmp_path,
        env={**os.environ, "EVSYS_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (7, ["False", str(experiment)]), done.stderr
