"""What `evsys` offers is what it lists, and asking costs only what is asked for."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import evsys
from evsys import errors, hookspecs, protocols, types
from evsys._plugins import decorators

SURFACE = [
    "HookManager",
    "PluginEntry",
    "Registry",
    "boundary",
    "current_registry",
    "errors",
    "hookimpl",
    "option",
    "protocols",
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
    "register_rollout_engine",
    "register_researcher",
    "register_search",
    "register_transform",
    "register_verifier",
    "register_verifier_fn",
    "schema_for_config",
    "structure",
    "types",
    "unstructure",
    "use_registry",
]


# Public is what stands here, by module. Whoever takes a name away breaks plugins, and needs a new protocol version.
PUBLIC = {
    "evsys.errors": """PLUGIN_FAILURES AlgorithmError BackendError BudgetExceeded ConfigError DataError DeployError
        EvaluationError EvsysError LaunchError PluginConflictError PluginContractError PluginError PluginIncompatibleError
        PluginLoadError PluginNotFoundError Problem RolloutError RunError StoreError VerifierError boundary""",
    "evsys.hooks": "HookManager",
    "evsys.hookspecs": "PROJECT hookimpl hookspec",
    "evsys.optional": """OFFERED OptionalMember SupportsBackendFacts SupportsClientFacts SupportsCollapse
        SupportsCounterexample SupportsEstimate SupportsEvaluationEstimate SupportsForesight SupportsKeep
        SupportsKeepState SupportsLora SupportsMeasure SupportsMeasureSchedule SupportsMetricFacts
        SupportsModelCheck SupportsMonitoring SupportsOracle SupportsPreflight SupportsPreview
        SupportsPromptLogprobs SupportsReadMetrics SupportsResearchFacts SupportsResults SupportsReuse SupportsRoleCheck
        SupportsRoles SupportsRolloutTime SupportsRowsTrained SupportsSamplingCost SupportsSelection
        SupportsSize SupportsSpace SupportsSwitch SupportsTaskValue SupportsText SupportsTrainingCost SupportsTrainingFacts SupportsTransformFacts
        SupportsUsage SupportsVersions SupportsWorkCheck declared members misspelt""",
    "evsys.protocols": """KINDS PROTOCOL_VERSIONS Agent Algorithm Backend Budget Callback Checkpoints DataStore Dataset
        Deployer Environment Evaluate Hooks InferenceClient Launcher Log LogStore Loss Metric Pause Recorder Renderer
        Researcher RolloutEngine RolloutMetric Rollouts SamplingClient Search StepBuilder Tokenizer TrainingClient Transform
        Verifier""",
    "evsys.types.context": "Clients RunContext StopFlag",
    "evsys.types.failures": "Failure",
    "evsys.types.evidence": "Claim ClaimOutcome ClaimResult Forgetting GuardResult Look LookSeries LossOutcome LossTest NoiseFloor Procedure RecipeRuns ReusedRun RunDeviation Settling SettlingPoint Subject",
    "evsys.types.jobs": "Job JobState",
    "evsys.types.research": "Proposal ResearchState Round Stop",
    "evsys.types.results": """ArmResult Comparison Conclusion Confirmed EvalResult EvaluationResult ExperimentResult
        MetricValue OutOfBand Outcome Purpose RunResult Status Verdict WithoutFlagged""",
    "evsys.types.rollouts": """AgentContext Completion FinishReason NoScore Policy Rollout RolloutLimits
        SampleResult SampledSequence SamplingParams Score Turn Usage Verify""",
    "evsys.types.rewards": "REWARD_TOLERANCE reaches",
    "evsys.types.rows": "ChatMessagesRow HarborTask Message PromptExample Role StoredVersion ToolCall VerifierSpec",
    "evsys.types.search": "SearchAxis",
    "evsys.types.selection": "Proof SelectedCheckpoint Selection",
    "evsys.types.training": """AdamParams Checkpoint Datum ForwardResult LoraSpec LossFn LossResult ModelSpec
        OptimResult TrainingBatch""",
}


def test_the_surface_is_pinned():
    assert sorted(SURFACE) == list(evsys.__all__)


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_of_each_module_are_pinned(module):
    assert sorted(import_module(module).__all__) == sorted(PUBLIC[module].split())


def test_every_public_module_is_pinned():
    folder = Path(evsys.__file__).parent
    modules = {f"evsys.{path.stem}" for path in folder.glob("[!_]*.py")}
    modules |= {f"evsys.types.{path.stem}" for path in (folder / "types").glob("[!_]*.py")}
    assert modules | {"evsys.optional"} == set(PUBLIC)


@pytest.mark.parametrize(
    ("module", "name"), [(m, name) for m, names in PUBLIC.items() if ".types." in m for name in names.split()]
)
def test_every_value_is_found_in_types(module, name):
    assert getattr(types, name) is getattr(import_module(module), name)


def test_what_type_checkers_see_is_what_is_there():
    """The names imported under TYPE_CHECKING are the public ones; the decorators come by a star."""
    tree = ast.parse(Path(evsys.__file__).read_text(encoding="utf-8"))
    [guarded] = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = [alias.name for node in guarded.body for alias in node.names if alias.name != "*"]
    registers = [name for name in vars(decorators) if name.startswith("register_")]
    assert sorted([*seen, *registers]) == list(evsys.__all__)


@pytest.mark.parametrize("name", SURFACE)
def test_each_name_is_there(name):
    assert getattr(evsys, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'evsys' has no attribute 'nothing'"):
        getattr(evsys, "nothing")  # noqa: B009
    with pytest.raises(AttributeError, match="register_nothing"):
        getattr(evsys, "register_nothing")  # noqa: B009


def test_importing_evsys_imports_nothing_else():
    code = "import sys; before = set(sys.modules); import evsys; print(*sorted(set(sys.modules) - before))"
    new = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name.partition(".")[0] for name in new} - set(sys.stdlib_module_names) == {"evsys"}
    assert not {"asyncio", "inspect", "importlib.metadata"} & set(new)


@pytest.mark.parametrize(
    ("names", "unwanted"),
    [
        ("current_registry use_registry Registry", "attrs cattrs pluggy numpy asyncio"),
        ("register_transform", "attrs cattrs pluggy numpy asyncio"),
        ("schema_for_config option unstructure", "cattrs pluggy numpy asyncio"),
        ("structure boundary types protocols", "pluggy numpy asyncio"),
        ("hookimpl HookManager", "cattrs numpy asyncio"),
    ],
)
def test_a_name_imports_what_it_needs(names, unwanted):
    code = f"import sys; from evsys import {', '.join(names.split())}; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(unwanted.split()) & set(modules) == set()


@pytest.mark.parametrize("module", [errors, protocols, hookspecs, evsys.types])
def test_public_lists_name_what_is_there(module):
    assert [name for name in getattr(module, "__all__", []) if not hasattr(module, name)] == []


def test_every_kind_has_a_group_and_a_protocol():
    for kind, group in protocols.KINDS.items():
        assert group == f"evsys.{kind}{'es' if kind in {'loss', 'search'} else 's'}"
        if kind not in {"plugin", "command"}:
            assert getattr(protocols, kind.title().replace("_", ""))._is_protocol
