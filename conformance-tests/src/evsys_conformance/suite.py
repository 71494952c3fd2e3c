"""The classes that `--evsys-conformance` collects. Nothing else here: to subclass, import from `evsys_conformance`."""

from __future__ import annotations

from evsys_conformance.checks.agent import AgentConformance
from evsys_conformance.checks.algorithm import AlgorithmConformance
from evsys_conformance.checks.backend import BackendConformance
from evsys_conformance.checks.callback import AmbientConformance, CallbackConformance
from evsys_conformance.checks.command import CommandConformance
from evsys_conformance.checks.data_store import DataStoreConformance
from evsys_conformance.checks.deployer import DeployerConformance
from evsys_conformance.checks.distribution import DistributionConformance
from evsys_conformance.checks.environment import EnvironmentConformance
from evsys_conformance.checks.inference_client import InferenceClientConformance
from evsys_conformance.checks.launcher import LauncherConformance
from evsys_conformance.checks.log_store import LogStoreConformance
from evsys_conformance.checks.loss import LossConformance
from evsys_conformance.checks.metric import MetricConformance
from evsys_conformance.checks.renderer import RendererConformance
from evsys_conformance.checks.researcher import ResearcherConformance
from evsys_conformance.checks.rollout_engine import RolloutEngineConformance
from evsys_conformance.checks.search import SearchConformance
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


class TestLogStore(LogStoreConformance):
    """Log stores."""


class TestInferenceClient(InferenceClientConformance):
    """Inference clients."""


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


class TestDeployer(DeployerConformance):
    """Deployers."""


class TestSearch(SearchConformance):
    """Searches."""


class TestLauncher(LauncherConformance):
    """Launchers."""


class TestResearcher(ResearcherConformance):
    """Researchers."""


class TestAmbient(AmbientConformance):
    """Modules of hooks that are always listening."""


class TestCommand(CommandConformance):
    """Commands of the command line."""
