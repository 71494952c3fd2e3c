"""The backend `tinker`: any server that speaks the Tinker protocol, through the official client."""

from __future__ import annotations

from evsys_backend_tinker.backend import TinkerBackend

__all__ = ["TinkerBackend"]
