"""Everything used of Harbor, in one place. Importing this module imports Harbor, which takes half a second."""

from evsys_runtime.config.agents import quiet_harbor

quiet_harbor()  # before the first import, at which LiteLLM may call home

from harbor import (  # noqa: E402
    AgentContext,
    BaseAgent,
    BaseEnvironment,
    BaseVerifier,
    EnvironmentType,
    ExecResult,
    RetryConfig,
    Task,
    TrialAgentConfig,
    TrialConfig,
    TrialEnvironmentConfig,
    TrialEvent,
    TrialQueue,
    TrialTaskConfig,
    TrialVerifierConfig,
    VerifierResult,
)
from harbor.agents.capabilities import AgentCapabilities  # noqa: E402
from harbor.environments.capabilities import EnvironmentCapabilities  # noqa: E402
from harbor.trial.errors import AgentTimeoutError  # noqa: E402

__all__ = [
    "AgentCapabilities",
    "AgentContext",
    "AgentTimeoutError",
    "BaseAgent",
    "BaseEnvironment",
    "BaseVerifier",
    "EnvironmentCapabilities",
    "EnvironmentType",
    "ExecResult",
    "RetryConfig",
    "Task",
    "TrialAgentConfig",
    "TrialConfig",
    "TrialEnvironmentConfig",
    "TrialEvent",
    "TrialQueue",
    "TrialTaskConfig",
    "TrialVerifierConfig",
    "VerifierResult",
]
