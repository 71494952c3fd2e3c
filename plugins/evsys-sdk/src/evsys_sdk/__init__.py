"""evsys_sdk: what a project imports. Re-exports only; names resolve lazily, so importing it costs nothing.

Importing it lets a script of a project `import src` though the project isn't installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys._lazy import lazy_names
from evsys_sdk._project import ProjectFinder

if TYPE_CHECKING:
    from evsys import (
        Registry,
        current_registry,
        hookimpl,
        option,
        register_agent,
        register_algorithm,
        register_backend,
        register_callback,
        register_data_store,
        register_deployer,
        register_environment,
        register_inference,
        register_inference_client,
        register_launcher,
        register_log_store,
        register_loss,
        register_metric,
        register_renderer,
        register_researcher,
        register_rollout_engine,
        register_search,
        register_transform,
        register_verifier,
        register_verifier_fn,
        use_registry,
    )
    from evsys.errors import (
        BackendError,
        BudgetExceeded,
        ConfigError,
        DataError,
        EvsysError,
        PluginError,
        Problem,
        RunError,
        StoreError,
    )
    from evsys.protocols import InferenceClient, StepBuilder
    from evsys.types import (
        AdamParams,
        AgentContext,
        ArmResult,
        ChatMessagesRow,
        Checkpoint,
        Completion,
        Conclusion,
        Datum,
        EvalResult,
        EvaluationResult,
        ExperimentResult,
        HarborTask,
        LoraSpec,
        LossResult,
        Message,
        ModelSpec,
        NoScore,
        PromptExample,
        Rollout,
        RunContext,
        RunResult,
        SamplingParams,
        Score,
        SearchAxis,
        ToolCall,
        TrainingBatch,
        Turn,
        Usage,
        VerifierSpec,
    )
    from evsys_algo_dpo import DPO
    from evsys_algo_rl import RL
    from evsys_algo_sft import SFT
    from evsys_runtime import BaseAlgorithm, TrainingLoop, TrainingParams, Workspace, loss
    from evsys_runtime.config.model import ExperimentConfig, RunConfig
    from evsys_runtime.data.parse import parse_rows
    from evsys_runtime.experiment import (
        Benchmark,
        EvsysStore,
        Experiment,
        InferenceFactory,
        Sweep,
        TrainFn,
        arun_experiment,
        run_experiment,
        schema_for,
    )

ProjectFinder.install()

_CORE = """Registry current_registry hookimpl option register_agent register_algorithm register_backend register_callback
register_data_store register_deployer register_environment register_inference register_inference_client register_launcher
register_log_store register_loss register_metric register_renderer register_researcher register_rollout_engine register_search
register_transform register_verifier register_verifier_fn use_registry"""
_ERRORS = (
    "BackendError BudgetExceeded ConfigError DataError EvsysError PluginError Problem RunError StoreError"
)
_PROTOCOLS = "InferenceClient StepBuilder"
_EXPERIMENT = """Benchmark EvsysStore Experiment InferenceFactory Sweep TrainFn arun_experiment run_experiment
schema_for"""
_TYPES = """AdamParams AgentContext ArmResult ChatMessagesRow Checkpoint Completion Conclusion Datum EvalResult EvaluationResult
ExperimentResult HarborTask LoraSpec LossResult Message ModelSpec NoScore PromptExample Rollout RunContext RunResult
SamplingParams Score SearchAxis ToolCall TrainingBatch Turn Usage VerifierSpec"""

_HOME: dict[str, str] = {
    **dict.fromkeys(_CORE.split(), "evsys"),
    **dict.fromkeys(_ERRORS.split(), "evsys.errors"),
    **dict.fromkeys(_TYPES.split(), "evsys.types"),
    **dict.fromkeys(_PROTOCOLS.split(), "evsys.protocols"),
    **dict.fromkeys(_EXPERIMENT.split(), "evsys_runtime.experiment"),
    **dict.fromkeys(("ExperimentConfig", "RunConfig"), "evsys_runtime.config.model"),
    "parse_rows": "evsys_runtime.data.parse",
    "BaseAlgorithm": "evsys_runtime",
    "TrainingLoop": "evsys_runtime",
    "TrainingParams": "evsys_runtime",
    "DPO": "evsys_algo_dpo",
    "RL": "evsys_algo_rl",
    "SFT": "evsys_algo_sft",
    "Workspace": "evsys_runtime",
    "loss": "evsys_runtime",
}

__all__ = [  # noqa: RUF022 - in the order of their homes
    "Registry",
    "current_registry",
    "hookimpl",
    "option",
    "register_agent",
    "register_algorithm",
    "register_backend",
    "register_callback",
    "register_data_store",
    "register_deployer",
    "register_environment",
    "register_inference",
    "register_inference_client",
    "register_launcher",
    "register_log_store",
    "register_loss",
    "register_metric",
    "register_renderer",
    "register_researcher",
    "register_rollout_engine",
    "register_search",
    "register_transform",
    "register_verifier",
    "register_verifier_fn",
    "use_registry",
    "BackendError",
    "BudgetExceeded",
    "ConfigError",
    "DataError",
    "EvsysError",
    "PluginError",
    "Problem",
    "RunError",
    "StoreError",
    "InferenceClient",
    "StepBuilder",
    "AdamParams",
    "AgentContext",
    "ArmResult",
    "ChatMessagesRow",
    "Checkpoint",
    "Completion",
    "Conclusion",
    "Datum",
    "EvalResult",
    "EvaluationResult",
    "ExperimentResult",
    "HarborTask",
    "LoraSpec",
    "LossResult",
    "Message",
    "ModelSpec",
    "NoScore",
    "PromptExample",
    "Rollout",
    "RunContext",
    "RunResult",
    "SamplingParams",
    "Score",
    "SearchAxis",
    "ToolCall",
    "TrainingBatch",
    "Turn",
    "Usage",
    "VerifierSpec",
    "ExperimentConfig",
    "RunConfig",
    "parse_rows",
    "Benchmark",
    "EvsysStore",
    "Experiment",
    "InferenceFactory",
    "Sweep",
    "TrainFn",
    "arun_experiment",
    "run_experiment",
    "schema_for",
    "BaseAlgorithm",
    "TrainingLoop",
    "TrainingParams",
    "DPO",
    "RL",
    "SFT",
    "Workspace",
    "loss",
]


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any
    __getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
