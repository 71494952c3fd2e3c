"""The import surface: pinned, lazy, and enough for what a project writes."""

from __future__ import annotations

import subprocess
import sys

import pytest

import evsys_sdk

SURFACE = """
AdamParams AgentContext ArmResult BackendError BaseAlgorithm BudgetExceeded ChatMessagesRow Checkpoint Completion
Conclusion ConfigError DataError Datum EvaluationResult EvsysError Experiment ExperimentResult HarborTask LoraSpec
LossResult Message ModelSpec NoScore PluginError Problem PromptExample Registry Rollout RunContext RunError RunResult SFT
SamplingParams Score StoreError ToolCall TrainingBatch TrainingLoop TrainingParams Turn Usage VerifierSpec Workspace
arun_experiment current_registry hookimpl loss option register_agent register_algorithm register_backend
register_callback register_data_store register_deployer register_environment register_inference
register_inference_client register_launcher register_log_store register_loss register_metric register_renderer
register_rollout_engine register_search register_transform register_verifier register_verifier_fn run_experiment
schema_for use_registry
""".split()


def test_the_surface_is_what_it_was():
    assert sorted(evsys_sdk.__all__) == sorted(SURFACE)


@pytest.mark.parametrize("name", SURFACE)
def test_every_name_resolves(name):
    assert getattr(evsys_sdk, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_thing"):
        evsys_sdk.no_such_thing  # noqa: B018 - the access is the test


def test_importing_it_loads_nothing_heavy():
    code = "import sys, evsys_sdk; print(*sorted(m for m in ('numpy', 'pydantic', 'evsys_runtime', 'attrs') if m in sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == ""
    )


def test_schema_for_gives_what_the_command_prints():
    assert evsys_sdk.schema_for("algorithm", "sft")["properties"]["learning_rate"]


def test_aliases_register_the_same_kinds():
    registry = evsys_sdk.Registry()
    with evsys_sdk.use_registry(registry):

        @evsys_sdk.register_verifier_fn("half")
        def half(model_output, expected, params):
            return 0.5

        @evsys_sdk.register_inference("echo")
        class Echo:
            async def generate(self, messages, sampling, *, n=1, tools=()):
                return []

    assert registry.get("verifier", "half") is half
    assert registry.get("inference_client", "echo") is Echo
