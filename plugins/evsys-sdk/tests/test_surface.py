"""The import surface: pinned, lazy, and enough for what a project writes."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import evsys.protocols
import evsys_sdk
import evsys_sdk.algorithms

# Public is what stands here: what leaves it, or changes its home, breaks somebody's import.
SURFACE = {
    "evsys": """Registry current_registry hookimpl option register_agent register_algorithm register_backend
        register_callback register_data_store register_deployer register_environment register_inference
        register_inference_client register_launcher register_log_store register_loss register_metric register_renderer
        register_researcher register_rollout_engine register_search register_transform register_verifier register_verifier_fn
        use_registry""",
    "evsys.errors": """BackendError BudgetExceeded ConfigError DataError EvsysError PluginError Problem RunError
        StoreError""",
    "evsys.protocols": "InferenceClient StepBuilder",
    "evsys.types": """AdamParams AgentContext ArmResult ChatMessagesRow Checkpoint Completion Conclusion Datum EvalResult
        EvaluationResult ExperimentResult HarborTask LoraSpec LossResult Message ModelSpec NoScore PromptExample Rollout
        RunContext RunResult SamplingParams Score SearchAxis ToolCall TrainingBatch Turn Usage VerifierSpec""",
    "evsys_algo_dpo": "DPO",
    "evsys_algo_rl": "RL",
    "evsys_algo_sft": "SFT",
    "evsys_runtime.config.model": "ExperimentConfig RunConfig",
    "evsys_runtime.data.parse": "parse_rows",
    "evsys_runtime.experiment": """Benchmark EvsysStore Experiment InferenceFactory Sweep TrainFn arun_experiment
        run_experiment schema_for""",
    "evsys_runtime": "BaseAlgorithm TrainingLoop TrainingParams Workspace loss",
}
SUBMODULES = {
    "algorithms": "DPO OPD RL SDFT SFT BaseAlgorithm",
    "algorithms.dpo": "DPO DPOParams RenderedPair preference_loss",
    "algorithms.opd": "OPD OPDParams",
    "algorithms.rl": "RL RLParams",
    "algorithms.sdft": "SDFT SDFTParams",
    "algorithms.sft": "SFT RenderReport RenderedRow SFTParams",
    "experiment": """ArmResult Benchmark EvalResult EvsysStore Experiment ExperimentConfig ExperimentResult InferenceFactory
        RunConfig Sweep TrainFn""",
    "protocols": " ".join([*evsys.protocols.__all__, "RunResult"]),
    "runner": "arun_experiment run_experiment",
}
NAMES = [(module, name) for module, names in SURFACE.items() for name in names.split()]


def test_the_surface_is_what_it_was():
    assert sorted(evsys_sdk.__all__) == sorted(name for _, name in NAMES)
    assert dir(evsys_sdk) == sorted(evsys_sdk.__all__)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_each_name_is_that_of_its_home(module, name):
    assert getattr(evsys_sdk, name) is getattr(import_module(module), name)


def test_what_type_checkers_see_is_what_is_there():
    """The imports under TYPE_CHECKING name the same homes as the table that resolves names at run time."""
    tree = ast.parse(Path(evsys_sdk.__file__).read_text(encoding="utf-8"))
    [guarded] = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = [(node.module, alias.name) for node in guarded.body for alias in node.names]
    assert sorted(seen) == sorted(NAMES)


@pytest.mark.parametrize(("name", "expected"), SUBMODULES.items())
def test_the_submodules_have_these_names(name, expected):
    module = import_module(f"evsys_sdk.{name}")
    assert sorted(module.__all__) == sorted(expected.split())
    assert all(hasattr(module, each) for each in module.__all__)


def test_no_public_submodule_is_missing_from_the_table():
    root = Path(evsys_sdk.__file__).parent
    files = {path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.py")}
    modules = {name.removesuffix("/__init__").replace("/", ".") for name in files} - {"__init__"}
    assert {name for name in modules if not name.startswith("_")} == SUBMODULES.keys()


def test_algorithms_are_the_same_wherever_they_are_imported_from():
    from evsys_sdk.algorithms.sft import SFT

    assert SFT is evsys_sdk.SFT is evsys_sdk.algorithms.SFT


@pytest.mark.parametrize("module", ["algorithms", "protocols"])
def test_packages_of_contracts_and_algorithms_import_no_algorithm(module):
    code = f"import sys, evsys_sdk.{module}; print(*sorted(m for m in ('numpy', 'evsys_runtime', 'evsys_algo_sft') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_an_unknown_algorithm_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_thing"):
        evsys_sdk.algorithms.no_such_thing  # noqa: B018 - the access is the test


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
