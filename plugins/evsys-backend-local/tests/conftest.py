"""Small random models, and what the tests of the engine share."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from evsys_backend_local.engine.batch import Example, Loss
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.trainable import Trainable
from evsys_backend_local.engine.weights import BaseWeights

SMALL = {
    "dim": 12,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 4,
    "hidden": 10,
    "vocab": 17,
    "max_context": 64,
}
VARIANTS = {
    "llama": {},
    "qwen2": {"qkv_bias": True},
    "qwen3 untied": {"qk_norm": True, "tied": False},
    "mistral": {"window": 4, "rope_factors": (1.0, 3.0)},
}


@pytest.fixture(params=list(VARIANTS))
def variant(request) -> dict[str, bool]:
    return VARIANTS[request.param]


@pytest.fixture
def make_engine() -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def make(dtype=np.float64, *, workers=2, max_rows=32, block_rows=5, scale=0.4, seed=0, **shape) -> Engine:
        weights = BaseWeights.allocate(ModelShape(**{**SMALL, **shape}), dtype)
        weights.params.flat[...] = np.random.default_rng(seed).normal(0, scale, weights.params.flat.size)
        engines.append(Engine(weights, workers=workers, max_rows=max_rows, block_rows=block_rows))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def randomise(model: Trainable, seed: int = 5, scale: float = 0.3) -> Trainable:
    """Move an adapter away from its start, where B is zero and half of the gradients vanish."""
    flat = model.params.flat
    flat[...] = np.random.default_rng(seed).normal(0, scale, flat.size)
    if model.lora is not None:
        model.lora.refresh()
    return model


@pytest.fixture(name="randomise")
def randomise_fixture() -> Callable[..., Trainable]:
    return randomise


@pytest.fixture
def examples() -> list[Example]:
    """Sequences that share beginnings of different lengths, half of them with three targets a position."""
    rng = np.random.default_rng(1)
    start = rng.integers(0, 17, 6)
    data = []
    for index in range(6):
        rest = rng.integers(0, 17, int(rng.integers(3, 14)))
        tokens = np.concatenate([start[: 3 + index % 3], rest])
        targets = rng.integers(0, 17, (len(tokens), 3) if index % 2 else len(tokens))
        data.append(Example(tokens=tokens, targets=targets, mask=rng.random(len(tokens)) < 0.7))
    return data


@pytest.fixture
def curved_loss(examples) -> Loss:
    """A loss whose gradient depends on the logprobs."""

    def loss(indices: Sequence[int], logprobs):
        value, grads = 0.0, []
        for index, own in zip(indices, logprobs, strict=True):
            factor = np.random.default_rng(index).normal(size=own.shape)
            mask = examples[index].mask.reshape((-1,) + (1,) * (own.ndim - 1))
            value += float((np.sin(own * factor) * mask).sum())
            grads.append(np.cos(own * factor) * factor * mask)
        return value, grads, {"examples": float(len(indices))}

    return loss


@pytest.fixture(scope="session")
def families() -> Path:
    """Folder of the small checkpoints, one for each family; `scripts/make_families.py` made them."""
    return Path(__file__).parent / "models" / "families"


@pytest.fixture(scope="session")
def gguf_writer() -> ModuleType:
    """Writes GGUF files, from the format's description."""
    return _module(Path(__file__).parent / "models" / "gguf_writer.py")


@pytest.fixture(scope="session")
def engine_numbers() -> ModuleType:
    """What the engine computes over a table of operations."""
    return _module(Path(__file__).parent / "support" / "engine_numbers.py")


@pytest.fixture(scope="session")
def routing() -> ModuleType:
    """A task that the families learn."""
    return _module(Path(__file__).parent / "support" / "routing.py")


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Peer:
    """Asks the other libraries."""

    def __init__(self, folder: Path) -> None:
        python = os.environ.get("EVSYS_ORACLES_PEER")
        assert python, "run `nox -s oracles`: it installs the libraries to compare with"
        self.python, self.folder, self.jobs = python, folder, []
        folder.mkdir()

    def ask(self, name: str, do: str, **job: object) -> None:
        self.jobs.append({"name": name, "do": do, **job})

    def run(self) -> None:
        path = self.folder / "jobs.json"
        path.write_text(json.dumps(self.jobs, default=str), encoding="utf-8")
        script = Path(__file__).parent / "support" / "peer.py"
        done = subprocess.run(
            [self.python, str(script), str(path), str(self.folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def __getitem__(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self.folder / f"{name}.npz") as file:
            return {key: file[key] for key in file}


@pytest.fixture(scope="session")
def make_peer() -> type[Peer]:
    return Peer
