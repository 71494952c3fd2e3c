"""The shared conformance suite for evsys plugins. Names resolve lazily: pytest imports this package in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evsys_conformance.checks.agent import AgentConformance
    from evsys_conformance.checks.algorithm import AlgorithmConformance
    from evsys_conformance.checks.backend import BackendConformance
    from evsys_conformance.checks.callback import AmbientConformance, CallbackConformance
    from evsys_conformance.checks.command import CommandConformance
    from evsys_conformance.checks.data_store import DataStoreConformance
    from evsys_conformance.checks.deployer import DeployerConformance
    from evsys_conformance.checks.entry import EntryConformance
    from evsys_conformance.checks.environment import EnvironmentConformance
    from evsys_conformance.checks.inference_client import InferenceClientConformance
    from evsys_conformance.checks.launcher import LauncherConformance
    from evsys_conformance.checks.log_store import LogStoreConformance
    from evsys_conformance.checks.loss import LossConformance
    from evsys_conformance.checks.metric import MetricConformance
    from evsys_conformance.checks.plugin import PluginConformance
    from evsys_conformance.checks.renderer import RendererConformance
    from evsys_conformance.checks.researcher import ResearcherConformance
    from evsys_conformance.checks.rollout_engine import RolloutEngineConformance
    from evsys_conformance.checks.search import SearchConformance
    from evsys_conformance.checks.transform import TransformConformance
    from evsys_conformance.checks.verifier import VerifierConformance
    from evsys_conformance.declare import check
    from evsys_conformance.fakes import FakeCall, FakeModel, tool_call
    from evsys_conformance.findings import breach, require

__all__ = [
    "AgentConformance",
    "AlgorithmConformance",
    "AmbientConformance",
    "BackendConformance",
    "CallbackConformance",
    "CommandConformance",
    "DataStoreConformance",
    "DeployerConformance",
    "EntryConformance",
    "EnvironmentConformance",
    "FakeCall",
    "FakeModel",
    "InferenceClientConformance",
    "LauncherConformance",
    "LogStoreConformance",
    "LossConformance",
    "MetricConformance",
    "PluginConformance",
    "RendererConformance",
    "ResearcherConformance",
    "RolloutEngineConformance",
    "SearchConformance",
    "TransformConformance",
    "VerifierConformance",
    "breach",
    "check",
    "require",
    "tool_call",
]

_HOME = {
    "AgentConformance": ".checks.agent",
    "AlgorithmConformance": ".checks.algorithm",
    "AmbientConformance": ".checks.callback",
    "BackendConformance": ".checks.backend",
    "CallbackConformance": ".checks.callback",
    "CommandConformance": ".checks.command",
    "DataStoreConformance": ".checks.data_store",
    "DeployerConformance": ".checks.deployer",
    "EntryConformance": ".checks.entry",
    "EnvironmentConformance": ".checks.environment",
    "FakeCall": ".fakes",
    "FakeModel": ".fakes",
    "InferenceClientConformance": ".checks.inference_client",
    "LauncherConformance": ".checks.launcher",
    "LogStoreConformance": ".checks.log_store",
    "LossConformance": ".checks.loss",
    "MetricConformance": ".checks.metric",
    "PluginConformance": ".checks.plugin",
    "RendererConformance": ".checks.renderer",
    "ResearcherConformance": ".checks.researcher",
    "RolloutEngineConformance": ".checks.rollout_engine",
    "SearchConformance": ".checks.search",
    "TransformConformance": ".checks.transform",
    "VerifierConformance": ".checks.verifier",
    "breach": ".findings",
    "check": ".declare",
    "require": ".findings",
    "tool_call": ".fakes",
}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any

    def __getattr__(name: str) -> Any:
        # As `lazy_names` of evsys, which would be imported before coverage begins to measure it.
        if name not in _HOME:
            raise AttributeError(f"module 'evsys_conformance' has no attribute {name!r}")
        from importlib import import_module

        return globals().setdefault(name, getattr(import_module(_HOME[name], __name__), name))
