"""The same program in two processes gives the same bytes: training, sampling and what is saved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import hashlib, sys
from pathlib import Path

import numpy as np

from evsys_backend_local.engine.adam import AdamParams
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.state import save_state
from evsys_backend_local.models.resolve import load_base

folder, workers, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
engine = Engine(load_base("evsys/tiny"), workers=workers, max_rows=64)
model = engine.create_adapter(rank=4, seed=seed)
rng = np.random.default_rng(seed)
start = rng.integers(97, 123, 9)
requests = [SampleRequest(prompt=[256, *start[: 4 + i % 3].tolist()], n=5, max_tokens=11, seed=seed + i) for i in range(6)]


def loss(_, logprobs):
    return 0.0, [-np.ones_like(own) / own.size for own in logprobs], {}


for step in range(3):
    data = []
    for output, request in zip(engine.sample(model, requests), requests, strict=True):
        for sample in output.samples:
            tokens = np.asarray([*request.prompt, *sample.tokens])
            data.append(Example(tokens=tokens[:-1], targets=tokens[1:]))
    engine.forward_backward(model, data, loss, separable=step != 1)
    engine.optim_step(model, AdamParams(learning_rate=1e-2))
for output in engine.sample(model, requests):
    print([(sample.tokens, [float(x).hex() for x in sample.logprobs]) for sample in output.samples])
save_state(model, folder)
for path in sorted(folder.iterdir()):
    print(path.name, hashlib.sha256(path.read_bytes()).hexdigest())
engine.close()
"""


def output(folder: Path, *, workers: int = 2, seed: int = 3, **environment: str) -> str:
    """What the program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(workers), str(seed)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("workers", [1, 2])
def test_two_processes_give_the_same_bytes(tmp_path, workers):
    first = output(tmp_path / "a", workers=workers, PYTHONHASHSEED="1")
    second = output(tmp_path / "b", workers=workers, PYTHONHASHSEED="2")
    assert first == second
    assert "adapter_model.safetensors" in first
    assert "optimizer.safetensors" in first


def test_another_seed_gives_others(tmp_path):
    assert output(tmp_path / "a", seed=3) != output(tmp_path / "b", seed=4)
