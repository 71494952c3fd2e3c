"""Facts about `evsys/tiny` that need no weights."""

from __future__ import annotations

from evsys_backend_local.engine.shape import ModelShape

LICENCE = "Apache-2.0"

SHAPE = ModelShape(
    dim=128, layers=4, heads=4, kv_heads=2, head_dim=32, hidden=352, vocab=259, max_context=1024
)
