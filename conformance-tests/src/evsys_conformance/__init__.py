"""The shared conformance suite for evsys plugins. Names resolve lazily: pytest imports this package in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evsys_conformance.checks.agent import AgentConformance
    from evsys_conformance.checks.algorithm import AlgorithmConformance
    from evsys_conformance.checks.backend import BackendConformance
    from evsys_conformance.checks.callback import CallbackConformance
    from evsys_conformance.checks.data_store import DataStoreConformance
    from evsys_conformance.checks.environment import EnvironmentConformance
    from evsys_conformance.checks.loss import LossConformance
    from evsys_conformance.checks.metric import MetricConformance
    from evsys_conformance.checks.plugin import EntryConformance, PluginConformance
    from evsys_conformance.checks.renderer import RendererConformance
    from evsys_conformance.checks.rollout_engine import RolloutEngineConformance
    from evsys_conformance.checks.transform import TransformConformance
    from evsys_conformance.checks.verifier import VerifierConformance
    from evsys_conformance.declare import check
    from evsys_conformance.fakes import FakeModel

__all__ = [
    "AgentConformance",
    "AlgorithmConformance",
    "BackendConformance",
    "CallbackConformance",
    "DataStoreConformance",
    "EntryConformance",
    "EnvironmentConformance",
    "FakeModel",
    "LossConformance",
    "MetricConformance",
    "PluginConformance",
    "RendererConformance",
    "RolloutEngineConformance",
    "TransformConformance",
    "VerifierConformance",
    "check",
]

_HOME = {
    "AgentConformance": "checks.agent",
    "AlgorithmConformance": "checks.algorithm",
    "BackendConformance": "checks.backend",
    "CallbackConformance": "checks.callback",
    "DataStoreConformance": "checks.data_store",
    "EntryConformance": "checks.plugin",
    "EnvironmentConformance": "checks.environment",
    "FakeModel": "fakes",
    "LossConformance": "checks.loss",
    "MetricConformance": "checks.metric",
    "PluginConformance": "checks.plugin",
    "RendererConformance": "checks.renderer",
    "RolloutEngineConformance": "checks.rollout_engine",
    "TransformConformance": "checks.transform",
    "VerifierConformance": "checks.verifier",
    "check": "declare",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOME:
        return globals().setdefault(name, getattr(import_module(f"{__name__}.{_HOME[name]}"), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
