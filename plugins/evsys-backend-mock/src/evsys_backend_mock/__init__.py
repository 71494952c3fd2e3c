"""The mock backend: a small parametric model with exact gradients, for trying experiments in milliseconds."""

from __future__ import annotations

from evsys_backend_mock.backend import MockBackend

__all__ = ["MockBackend"]
