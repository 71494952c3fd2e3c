"""The suite has no false alarm: plugins that keep their contract pass, however they are written."""

from pathlib import Path

import pytest

from evsys_conformance import PluginConformance
from evsys_conformance.declare import checks_of

pytestmark = pytest.mark.timeout(300)  # one run of the suite serves all tests, and the machine may be busy
TESTS = Path(__file__).parent

RIGHT = {
    "verifier": [
        *("function", "async_function", "sees_the_rollout", "a_partial", "AttrsPlugin", "DataclassPlugin"),
        *("PydanticConfig", "InheritsTheProtocol", "IsMoody", "NestedConfig", "NeedsAService", "ReadsMore"),
        *("ReadsOldNames", "JudgesJson"),
    ],
    "transform": [
        *("function", "gives_a_list", "with_config", "DropsAll", "RowsOfItsOwn", "KnowsItsColumns"),
    ],
    "metric": ["Plain", "BestOf", "FailureRate", "Tokens"],
    "agent": ["function", "AsksTwice", "TellsFailures"],
    "loss": ["a_number", "with_metrics", "BringsGradients", "StopsAtARatio", "StopsAtALikelihood"],
    "rollout_engine": ["OneByOne", "Iterator"],
    "renderer": ["Bytes"],
    "data_store": ["LazyRows", "FilesWithAnEnd"],
    "log_store": ["WritesInAThread", "WritesAtTheEnd"],
    "callback": ["Plain", "Async", "Marked", "TakesEverything", "Mark"],
    "environment": ["Switches"],
    "deployer": ["Copies"],
    "search": ["RandomSearch"],
    "launcher": ["Subprocesses"],
    "researcher": ["Climbs"],
    "command": ["commands"],
    "algorithm": ["WithoutToolkit", "Focal", "OwnColumns"],
    "backend": ["DeclaresNothing"],
}
MODULES = {
    **dict.fromkeys(("data_store", "log_store"), "right_stores"),
    **dict.fromkeys(("algorithm", "backend"), "right_training"),
    **dict.fromkeys(
        ("environment", "deployer", "search", "launcher", "researcher", "command"), "right_others"
    ),
    "callback": "right_listeners",
}
ENTRIES = [
    *(
        (kind, name, f"{MODULES.get(kind, f'right_{kind}')}:{name}")
        for kind, names in RIGHT.items()
        for name in names
    ),
    ("inference_client", "Scripted", "right_others:Scripted"),
    ("inference_client", "Echo", "broken_inference_client:Right"),
    ("plugin", "module", "right_listeners"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory, install, start_suite):
    """What the suite says about all right plugins."""
    folder = tmp_path_factory.mktemp("right")
    install(folder / "site", "right", ENTRIES)
    paths = [folder / "site", TESTS / "right", TESTS / "broken"]
    return start_suite(folder, ["right"], paths=paths).report()


@pytest.mark.parametrize(("kind", "name"), [entry[:2] for entry in ENTRIES])
def test_a_right_plugin_passes_every_check(report, failures_of, kind, name):
    assert failures_of(report, kind, f"right/{name}") == {}


def test_nothing_heavy_is_loaded(report, failures_of):
    assert failures_of(report, None, "right") == {}


def test_every_kind_is_among_them():
    from evsys.protocols import KINDS

    assert {kind for kind, _, _ in ENTRIES} == set(KINDS)


def test_every_check_passes_for_one_of_them(report):
    """A check that is skipped for all of them isn't known to let a right plugin pass."""
    of_all = {f"::{name}" for name, _ in checks_of(PluginConformance)}

    def checks(outcome):
        found = {entry["check"] for entry in report["checks"] if entry["outcome"] == outcome}
        return {
            check if check[check.index("::") :] not in of_all else check[check.index("::") :]
            for check in found
        }

    passed, skipped = checks("passed"), checks("skipped")
    assert skipped - passed == {
        # What a backend may declare; the in-repo backends do, and are measured by these.
        "TestBackend::test_averages_its_weights",
        "TestBackend::test_gradient_of_a_built_in_is_that_of_the_callable",
        "TestBackend::test_prompt_logprobs_are_those_computed",
        "TestBackend::test_restores_the_average",
        "TestBackend::test_restores_what_it_saved",
        "TestBackend::test_restores_without_the_optimizer_if_told",
        "TestBackend::test_same_seed_gives_the_same_bits",
        "TestBackend::test_saved_state_is_json",
        "TestBackend::test_starts_from_a_checkpoint",
        "TestBackend::test_top_logprobs_hold_the_likeliest",
        "TestBackend::test_top_prompt_logprobs_hold_the_likeliest",
        # Of a loss that has the name of a built-in one, which only evsys itself has.
        "TestLoss::test_agrees_with_the_formula",
        "TestBackend::test_trains_all_weights",
        "TestBackend::test_two_at_once_share_nothing",
    }


@pytest.mark.parametrize(
    ("plugin", "check", "reason"),
    [
        ("right/NeedsAService", "TestVerifier::test_any_text_gets_a_finite_reward", "--evsys-live"),
        ("right/DeclaresNothing", "TestBackend::test_restores_what_it_saved", "doesn't declare 'resume'"),
        ("right/WritesAtTheEnd", "TestLogStore::test_records_come_back_as_they_were", "read_back"),
        ("right/IsMoody", "TestVerifier::test_same_text_gets_the_same_reward", "isn't deterministic"),
        ("right/function", "TestTransform::test_config_round_trips", "it takes no params"),
    ],
)
def test_what_is_not_asked_of_a_plugin_is_skipped_with_the_reason(report, plugin, check, reason):
    (entry,) = [e for e in report["checks"] if (e["plugin"], e["check"]) == (plugin, check)]
    assert entry["outcome"] == "skipped"
    assert reason in entry["reason"]


def test_no_skip_is_without_a_reason(report):
    assert [
        entry for entry in report["checks"] if entry["outcome"] == "skipped" and not entry["reason"]
    ] == []
