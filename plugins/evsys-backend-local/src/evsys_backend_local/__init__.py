"""The `local` backend: trains and samples real Llama-family models on this machine, in process."""

from __future__ import annotations

from evsys_backend_local.backend import LocalBackend

__all__ = ["LocalBackend"]
