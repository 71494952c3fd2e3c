"""The classes that `--evsys-conformance` collects. Nothing else here: to subclass, import from `evsys_conformance`."""

from __future__ import annotations

from typing import ClassVar

from evsys_conformance.checks.agent import AgentConformance
from evsys_conformance.checks.algorithm import AlgorithmConformance
from evsys_conformance.checks.backend import BackendConformance
from evsys_conformance.checks.callback import AmbientConformance, CallbackConformance
from evsys_conformance.checks.data_store import DataStoreConformance
from evsys_conformance.checks.distribution import DistributionConformance
from evsys_conformance.checks.environment import EnvironmentConformance
from evsys_conformance.checks.loss import LossConformance
from evsys_conformance.checks.metric import MetricConformance
from evsys_conformance.checks.plugin import EntryConformance, PluginConformance
from evsys_conformance.checks.renderer import RendererConformance
from evsys_conformance.checks.rollout_engine import RolloutEngineConformance
from evsys_conformance.checks.transform import TransformConformance
from evsys_conformance.checks.verifier import VerifierConformance


class TestDistribution(DistributionConformance):
    """Distributions as a whole."""


class TestAlgorithm(AlgorithmConformance):
    """Algorithms."""


class TestBackend(BackendConformance):
    """Backends."""


class TestLoss(LossConformance):
    """Losses."""


class TestTransform(TransformConformance):
    """Transforms."""


class TestVerifier(VerifierConformance):
    """Verifiers."""


class TestMetric(MetricConformance):
    """Metrics."""


class TestDataStore(DataStoreConformance):
    """Data stores."""


class TestLogStore(PluginConformance):
    """Log stores."""

    kind: ClassVar[str | None] = "log_store"


class TestInferenceClient(PluginConformance):
    """Inference clients."""

    kind: ClassVar[str | None] = "inference_client"


class TestRolloutEngine(RolloutEngineConformance):
    """Rollout engines."""


class TestEnvironment(EnvironmentConformance):
    """Environments."""


class TestAgent(AgentConformance):
    """Agents."""


class TestRenderer(RendererConformance):
    """Renderers."""


class TestCallback(CallbackConformance):
    """Callbacks."""


class TestDeployer(PluginConformance):
    """Deployers."""

    kind: ClassVar[str | None] = "deployer"


class TestSearch(PluginConformance):
    """Searches."""

    kind: ClassVar[str | None] = "search"


class TestLauncher(PluginConformance):
    """Launchers."""

    kind: ClassVar[str | None] = "launcher"


class TestAmbient(AmbientConformance):
    """Modules of hooks that are always listening."""


class TestCommand(EntryConformance):
    """Commands of the command line."""

    kind: ClassVar[str | None] = "command"
