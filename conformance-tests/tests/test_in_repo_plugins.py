"""Every plugin of this repository keeps its contract. The test command runs this, and so runs the suite over all of them."""

import pytest

pytestmark = pytest.mark.timeout(300)  # one run of the suite serves all tests, and the machine may be busy


@pytest.fixture(scope="module")
def report(tmp_path_factory, start_suite):
    """What the whole suite says, run once as an author would run it, in a folder of its own."""
    return start_suite(tmp_path_factory.mktemp("all"), ["all"]).report()


def test_all_of_them_pass_every_check(report):
    failed = {
        f"{e['check']}[{e['plugin']}]": e["reason"] for e in report["checks"] if e["outcome"] == "failed"
    }
    assert failed == {}
    assert report["passed"] is True


@pytest.mark.parametrize(
    ("plugin", "check"),
    [
        ("evsys-algo-rl/rl", "TestAlgorithm::test_same_seed_same_batches"),
        ("evsys-algo-sft/sft", "TestAlgorithm::test_resumes_exactly"),
        ("evsys-backend-local/local", "TestBackend::test_gradient_of_a_built_in_is_that_of_the_callable"),
        ("evsys-backend-local/local", "TestBackend::test_trains_all_weights"),
        ("evsys-backend-local/local", "TestBackend::test_calls_are_done_in_their_order"),
        ("evsys-backend-mock/mock", "TestBackend::test_restores_what_it_saved"),
        ("evsys-backend-mock/mock", "TestBackend::test_two_at_once_share_nothing"),
        ("evsys-backend-mock/mock", "TestBackend::test_prompt_logprobs_are_those_computed"),
        ("evsys-backend-mock/mock", "TestBackend::test_top_logprobs_hold_the_likeliest"),
        ("evsys-backend-mock/mock", "TestBackend::test_same_seed_gives_the_same_bits"),
        ("evsys-backend-mock/mock", "TestBackend::test_saved_state_is_json"),
        ("evsys-conformance/conformance", "TestCommand::test_says_what_it_does"),
        ("evsys-runtime/chat_template", "TestRenderer::test_every_answer_is_trained"),
        ("evsys-runtime/ppo", "TestLoss::test_agrees_with_the_formula"),
        ("evsys-std/chat", "TestAgent::test_acts_on_several_tasks_at_once"),
        ("evsys-std/direct", "TestRolloutEngine::test_agents_are_told_what_the_policy_says"),
        ("evsys-std/local", "TestDataStore::test_half_written_data_are_an_error"),
        ("evsys-std/local", "TestDataStore::test_rows_come_as_they_are"),
        ("evsys-std/mix", "TestTransform::test_other_columns_are_kept"),
        ("evsys-std/null", "TestEnvironment::test_stops_after_a_start_that_was_cancelled"),
        ("evsys-verifiers-std/pass@k", "TestMetric::test_more_than_the_samples_is_refused"),
        ("evsys-verifiers-std/tool_calls_match", "TestVerifier::test_any_text_gets_a_finite_reward"),
    ],
)
def test_each_is_measured_by_what_its_kind_asks_for(report, plugin, check):
    (outcome,) = [e["outcome"] for e in report["checks"] if (e["plugin"], e["check"]) == (plugin, check)]
    assert outcome == "passed"


def test_none_is_known_to_fail(report):
    assert "xfailed" not in report["counts"]
