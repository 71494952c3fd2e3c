from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.weights import BaseWeights


@pytest.fixture
def small_weights(gguf_writer: ModuleType) -> BaseWeights:
    """Random weights whose vocabulary is the test tokenizer's."""
    vocab = len(gguf_writer.tokenizer_metadata()["tokenizer.ggml.tokens"])
    shape = ModelShape(
        dim=8,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=4,
        hidden=10,
        vocab=vocab,
        rope_theta=5000.0,
        max_context=64,
    )
    weights = BaseWeights.random(shape, 0)
    weights.params.flat[...] += np.random.default_rng(1).normal(0, 0.1, weights.params.flat.size)
    return weights


@pytest.fixture
def model_cache(tmp_path, monkeypatch) -> Path:
    """An empty model cache."""
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"
