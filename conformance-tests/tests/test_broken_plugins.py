"""Each check of the suite catches a plugin that is broken in its way, and no other check does.

All of them lie in `broken/`, a module a kind, and pass for installed distributions, of which the whole suite is run. Since a
culprit has to fail its check and nothing else, removing a check makes a test here fail, and so does a check without a culprit.
"""

from pathlib import Path

import pytest

from evsys_conformance import suite
from evsys_conformance.declare import checks_of

pytestmark = pytest.mark.timeout(300)  # one run of the suite serves all tests, and the machine may be busy
BROKEN = Path(__file__).with_name("broken")

CULPRITS = {
    "verifier": {
        "Gone": "test_loads",
        "SaysAnotherName": "test_is_known_by_its_name",
        "PhonesHome": "test_needs_no_network_to_be_made",
        "SaysOddThings": "test_says_only_what_the_suite_understands",
        "CannotBeMade": "test_builds",
        "NoJsonSchema": "test_schema_can_be_made",
        "RefusesWhatIsAllowed": "test_what_the_schema_allows_is_accepted",
        "AcceptsWhatIsForbidden": "test_what_the_schema_forbids_is_refused",
        "TakesAnyKey": "test_unknown_keys_are_refused",
        "GrowsInJson": "test_config_round_trips",
        "ShowsItsKey": "test_repr_carries_no_secret",
        "NotANumber": "test_any_text_gets_a_finite_reward",
        "Fickle": "test_same_text_gets_the_same_reward",
        "NoRange": "test_reward_range_is_declared",
        "LeavesItsRange": "test_reward_stays_in_its_range",
        "NeverScores": "test_scores_its_own_examples",
        "NeedsAnother": "test_any_text_gets_a_finite_reward",
        "Exits": "test_any_text_gets_a_finite_reward",
        "ConfigIsNone": "test_schema_can_be_made",
        "SchemaFails": "test_schema_can_be_made",
        "AsksAtImport": "test_import_needs_no_network",
        "PrintsAtImport": "test_import_prints_nothing",
        "SleepsAtImport": "test_import_is_quick",
        "MisspellsAMember": "test_optional_members_are_spelt_right",
    },
    "transform": {
        "Mutates": "test_rows_are_left_as_they_were",
        "Remembers": "test_same_rows_twice_give_the_same",
        "NeedsRows": "test_no_rows_are_fine",
        "GivesPairs": "test_gives_mappings",
        "LosesColumns": "test_other_columns_are_kept",
        "NeedsAColumn": "test_gives_mappings",
        "CountsFirst": "test_gives_mappings",
        "ReadsTwice": "test_gives_mappings",
    },
    "metric": {
        "Infinite": "test_is_finite",
        "FirstTaskOnly": "test_order_of_tasks_does_not_matter",
        "FailsWithoutTasks": "test_no_tasks_have_a_defined_value",
        "TakesFewer": "test_more_than_the_samples_is_refused",
        "Upwards": "test_direction_is_max_or_min",
        "SaysNoDirection": "test_a_metric_of_rollouts_says_its_direction",
        "Backwards": "test_all_passed_is_at_least_as_good_as_all_failed",
        "Outside": "test_stays_in_its_value_range",
        "GivesAMapping": "test_is_finite",
        "mean_reward": "test_name_is_not_that_of_a_built_in",
        "ExpectsAMapping": "test_is_finite",
        "ExpectsListsOfRollouts": "test_is_finite",
    },
    "agent": {
        "OtherNames": "test_signatures_are_those_of_the_protocol",
        "NotAsync": "test_async_where_the_protocol_is",
        "GivesANumber": "test_gives_a_rollout_or_a_text",
        "NeverAsks": "test_gives_a_rollout_or_a_text",
        "FirstMessageOnly": "test_takes_an_instruction_of_several_messages",
        "OwnSampling": "test_samples_as_it_is_told",
        "HidesFailures": "test_failures_of_the_model_are_told",
        "OneTaskAtATime": "test_acts_on_several_tasks_at_once",
        "GoesOn": "test_cancels_within_a_second",
    },
    "rollout_engine": {
        "OneTwice": "test_every_rollout_comes_once",
        "MixesAnswers": "test_each_rollout_is_of_its_task",
        "OneSeedForAll": "test_agents_are_told_what_the_policy_says",
        "CrashIsZero": "test_a_crash_is_data_and_stops_no_other",
        "AllAtOnce": "test_runs_no_more_at_once_than_allowed",
        "Patient": "test_a_rollout_that_takes_too_long_is_ended",
        "LeavesThemRunning": "test_closing_it_ends_what_runs",
    },
    "data_store": {
        "GivesTexts": "test_gives_rows",
        "PlainLettersOnly": "test_rows_come_as_they_are",
        "SharesItsRows": "test_same_reference_gives_the_same_bytes",
        "OneCursor": "test_pulls_at_once_do_not_disturb_each_other",
        "NothingIsFine": "test_unknown_reference_is_an_error",
        "ShorterIsFine": "test_half_written_data_are_an_error",
    },
    "renderer": {
        "FloatTokens": "test_prompts_are_token_ids",
        "OneWeightTooMany": "test_tokens_and_weights_have_one_length",
        "AnotherPrompt": "test_training_goes_on_from_the_prompt",
        "TrainsThePrompt": "test_prompts_are_not_trained",
        "LastAnswerOnly": "test_every_answer_is_trained",
        "ForgetsToolCalls": "test_tool_calls_are_read_back",
        "WeightsOneEarly": "test_prompts_are_not_trained",
        "ReadsSomethingElse": "test_answers_are_read_back",
        "NeverStops": "test_a_trained_turn_ends_with_a_stop_token",
    },
    "environment": {
        "StopsOnce": "test_starts_and_stops_twice",
        "NeedsAStart": "test_stops_without_a_start",
        "ReleasesWhatItHasNot": "test_stops_without_a_start",
        "HalfStarted": "test_stops_after_a_start_that_was_cancelled",
        "GoesOnStarting": "test_stops_after_a_start_that_was_cancelled",
    },
    "callback": {
        "Misspelt": "test_hooks_are_real_ones",
        "ExpectsAnotherType": "test_annotations_are_those_of_the_hooks",
        "ListensToNothing": "test_listens_to_something",
        "Fails": "test_hooks_run_without_failing",
        "CancelsTheRun": "test_nothing_that_it_does_ends_a_run",
        "ChangesMetrics": "test_what_it_hears_is_left_as_it_was",
    },
    "loss": {
        "Infinite": "test_is_finite",
        "Mean": "test_is_a_sum",
        "MetricIsText": "test_metrics_are_finite_numbers",
        "ChangesData": "test_inputs_are_left_as_they_were",
        "DoublesWeights": "test_inputs_are_left_as_they_were",
        "TwiceTheGradient": "test_gradient_is_that_of_the_value",
        "UphillPastARatio": "test_gradient_is_that_of_the_value",
        "UphillPastALikelihood": "test_gradient_is_that_of_the_value",
        "cross_entropy": "test_agrees_with_the_formula",
    },
    "algorithm": {
        "LossIsNan": "test_trains_on_the_mock_backend",
        "FailsInAStep": "test_trains_on_the_mock_backend",
        "TrainsOnNothing": "test_trains_on_the_mock_backend",
        "NeverTrains": "test_weights_are_trained",
        "CountsOneMore": "test_steps_are_counted",
        "OneStepLess": "test_keeps_to_the_number_of_steps",
        "NeverStops": "test_stops_on_request",
        "ANewOrderEachRun": "test_same_seed_same_batches",
        "OneOrderForAll": "test_other_seed_other_batches",
        "StartsAnew": "test_resumes_exactly",
        "HidesItsEnd": "test_cancels_within_a_second",
    },
    "backend": {
        "Teleports": "test_capabilities_are_known_words",
        "PositiveLogprobs": "test_forward_gives_a_logprob_for_each_target",
        "LearnsOneStep": "test_loss_falls_on_the_toy_task",
        "MeanLoss": "test_loss_is_that_of_the_formula",
        "HalfTheGradient": "test_gradient_of_a_built_in_is_that_of_the_callable",
        "ForgetsGradients": "test_gradients_add_up",
        "SkipsIdleSteps": "test_a_step_clears_the_gradient",
        "OwnLearningRate": "test_learning_rate_is_that_of_the_step",
        "ForwardIsBackwardToo": "test_forward_leaves_the_gradient",
        "WaitsForTheAwait": "test_calls_are_done_in_their_order",
        "OtherTokenizer": "test_tokens_of_the_renderer_are_those_of_the_tokenizer",
        "StateHoldsAPath": "test_saved_state_is_json",
        "OneTokenMore": "test_samples_are_as_many_and_as_long_as_asked",
        "NoStopTokens": "test_stop_tokens_end_a_sample",
        "FirstTokenIsCertain": "test_logprobs_are_computed_for_each_token",
        "OnePromptAtATime": "test_samples_at_once_do_not_disturb_each_other",
        "HasNoTopPromptLogprobs": "test_top_prompt_logprobs_hold_the_likeliest",
        "ForgetsMoments": "test_restores_what_it_saved",
        "ForgetsTheAverage": "test_restores_the_average",
        "AveragesNothing": "test_averages_its_weights",
        "NeedsAClient": "test_tears_down_after_a_failed_prepare",
        "SharesWeights": "test_two_at_once_share_nothing",
        "OtherLogprobs": "test_sampled_logprobs_are_those_recomputed",
        "LiveSnapshots": "test_a_snapshot_is_frozen",
        "OtherPromptLogprobs": "test_prompt_logprobs_are_those_computed",
        "OneTooFew": "test_top_logprobs_hold_the_likeliest",
        "DrawsAsItLikes": "test_same_seed_gives_the_same_bits",
        "TrainsEverythingItSays": "test_trains_all_weights",
        "TrainsLowRankAnyway": "test_trains_all_weights",
        "OwnEps": "test_eps_is_that_of_the_step",
        "NeverClips": "test_grad_clip_is_that_of_the_step",
        "OwnBeta1": "test_beta1_is_that_of_the_step",
        "OwnBeta2": "test_beta2_is_that_of_the_step",
        "NeverDecays": "test_weight_decay_is_that_of_the_step",
        "NormAfterClipping": "test_gradient_norm_is_that_before_clipping",
        "AlwaysRestoresTheOptimizer": "test_restores_without_the_optimizer_if_told",
        "OwnRank": "test_rank_is_that_of_the_model",
        "OwnAlpha": "test_alpha_is_that_of_the_model",
        "StartsUntrained": "test_starts_from_a_checkpoint",
        "OwnLossParams": "test_loss_params_are_those_of_the_call",
        "SwallowsErrors": "test_bad_input_fails",
        "KeepsBatches": "test_memory_does_not_grow_with_the_steps",
        "OneSampleRepeated": "test_samples_of_one_call_differ",
        "SamplesLive": "test_a_snapshot_is_frozen",
        "HalfPrecision": "test_logprobs_have_the_precision_of_float32",
    },
    "log_store": {
        "StampsRecords": "test_takes_records_of_all_kinds",
        "NeedsARecord": "test_closes_without_a_record",
        "PlainLettersOnly": "test_records_come_back_as_they_were",
        "LastWriterWins": "test_concurrent_writes_do_not_interleave",
        "WritesAnew": "test_readers_see_whole_records_that_stay",
        "BeginsAnew": "test_another_object_goes_on",
    },
    "inference_client": {
        "OneWhateverIsAsked": "test_gives_as_many_completions_as_asked",
        "TellsNoUsage": "test_usage_is_told",
        "TalksOn": "test_max_tokens_is_kept",
        "AddsToTheList": "test_conversation_is_left_as_it_was",
        "MixesConversations": "test_each_conversation_gets_its_own_answer",
        "LeavesOutTheFirst": "test_prompt_logprobs_have_an_entry_for_each_token",
        "TellsProbabilities": "test_prompt_logprobs_have_an_entry_for_each_token",
        "HidesFailures": "test_failures_are_told",
        "GoesOn": "test_cancels_within_a_second",
    },
    "deployer": {
        "SaysNothing": "test_says_where",
        "MovesWeights": "test_checkpoint_is_left_as_it_was",
        "DoesNotLook": "test_a_checkpoint_that_is_not_there_is_an_error",
    },
    "search": {
        "GivesPaths": "test_proposes_arms",
        "LeavesTheSpace": "test_stays_in_the_space",
        "KnowsNoConditions": "test_stays_in_the_space",
        "SkipsAnAxis": "test_stays_in_the_space",
        "DrawsOnAndOn": "test_same_history_same_arms",
        "AsksAgain": "test_asks_for_no_arm_twice",
        "GoesOn": "test_ends",
        "TakesNotes": "test_history_is_left_as_it_was",
        "NeedsScores": "test_failed_arms_are_results",
        "StopsByMood": "test_keeps_by_the_history_alone",
    },
    "launcher": {
        "OwnEnvironment": "test_runs_jobs_as_they_are_given",
        "Backwards": "test_gives_an_id_for_each_job",
        "NeedsJobs": "test_no_jobs_have_no_ids",
        "RefusesUnknown": "test_an_unknown_job_has_ended",
        "FindsTheNewest": "test_finds_a_job_by_its_name",
        "KnowsNoSignals": "test_knows_of_a_kill",
        "KillsAtOnce": "test_a_job_asked_to_end_may_tidy_up",
        "OnlyAsks": "test_a_cancelled_job_ends",
        "CancelsOnce": "test_ended_jobs_can_be_cancelled",
        "NoWorkers": "test_says_how_many_jobs_run_at_once",
    },
    "researcher": {
        "SaysNothing": "test_proposes_an_experiment_or_stops",
        "StopsWithoutReason": "test_proposes_an_experiment_or_stops",
        "GivesPaths": "test_proposals_are_json",
        "EditsTheBenchmark": "test_changes_levers_only",
        "DrawsOnAndOn": "test_same_state_same_proposal",
        "ProposesAgain": "test_proposes_no_arm_twice",
        "TakesNotes": "test_state_is_left_as_it_was",
        "NeedsScores": "test_lost_and_failed_rounds_are_rounds",
    },
    "command": {
        "NotACommand": "test_is_a_command",
        "SaysNothing": "test_says_what_it_does",
        "run": "test_name_is_not_that_of_a_built_in",
    },
}
# Faults of which other checks can't help but take notice: they need what is broken.
ALSO = {
    "cross_entropy": {"test_name_is_not_that_of_a_built_in"},
    "PositiveLogprobs": {"test_loss_params_are_those_of_the_call"},
    "LearnsOneStep": {
        "test_beta1_is_that_of_the_step",
        "test_beta2_is_that_of_the_step",
        "test_weight_decay_is_that_of_the_step",
    },
    "ForwardIsBackwardToo": {
        "test_beta1_is_that_of_the_step",
        "test_beta2_is_that_of_the_step",
        "test_restores_without_the_optimizer_if_told",
    },
    "ForgetsMoments": {"test_restores_without_the_optimizer_if_told"},
    "OwnEps": {
        "test_beta1_is_that_of_the_step",
        "test_grad_clip_is_that_of_the_step",
        "test_restores_without_the_optimizer_if_told",
    },
    "NormAfterClipping": {"test_restores_without_the_optimizer_if_told"},
}

TABLE = [(kind, name, check) for kind, broken in CULPRITS.items() for name, check in broken.items()]


MODULES = {
    "AsksAtImport": "broken_asks",
    "PrintsAtImport": "broken_prints",
    "SleepsAtImport": "broken_slow",
}
"""What happens at import needs a module of its own."""

SLOW = {"backend"}
"""Kinds whose culprits make a run of their own, beside that of all others."""


@pytest.fixture(scope="session")
def report(tmp_path_factory, install, start_suite):
    """What the suite says about all broken plugins, from two runs side by side."""
    folder = tmp_path_factory.mktemp("broken")
    site = folder / "site"
    entries = [(kind, name, f"{MODULES.get(name, f'broken_{kind}')}:{name}") for kind, name, _ in TABLE]
    slow = [entry for entry in entries if entry[0] in SLOW]
    others = [entry for entry in entries if entry[0] not in SLOW]
    install(site / "slow", "broken", slow)
    install(site / "others", "broken", others)
    install(site / "others", "broken_heavy", [("verifier", "Slow", "broken_heavy:Slow")])
    runs = [
        start_suite(folder / "slow", ["broken"], paths=[site / "slow", BROKEN]),
        start_suite(
            folder / "others",
            ["broken", "broken-heavy"],
            paths=[site / "others", BROKEN, BROKEN.with_name("right")],
        ),
    ]
    reports = [run.report() for run in runs]
    return {"checks": [entry for report in reports for entry in report["checks"]]}


@pytest.mark.parametrize(("kind", "name", "check"), TABLE, ids=[f"{kind}-{name}" for kind, name, _ in TABLE])
def test_a_broken_plugin_fails_its_own_check_and_no_other(report, failures_of, kind, name, check):
    found = failures_of(report, kind, f"broken/{name}")
    assert set(found) == {check} | ALSO.get(name, set()), found


def test_a_plugin_that_is_heavy_to_import_fails_the_check_of_its_distribution_alone(report, failures_of):
    assert set(failures_of(report, None, "broken-heavy")) == {"test_loading_it_imports_nothing_heavy"}
    assert failures_of(report, None, "broken") == {}
    assert failures_of(report, "verifier", "broken-heavy/Slow") == {}


def test_every_check_has_a_culprit():
    classes = {cls.kind: cls for name, cls in vars(suite).items() if name.startswith("Test")}
    all_checks = {(owner(cls, name), name) for cls in classes.values() for name, _ in checks_of(cls)}
    caught = {(owner(classes[kind], check), check) for kind, _, check in TABLE}
    # The heavy distribution above, and a subclass that overrides a check, which test_pytest_plugin.py has.
    elsewhere = {"test_loading_it_imports_nothing_heavy", "test_no_check_is_overridden"}
    assert {name for _, name in all_checks - caught} == elsewhere
    assert caught <= all_checks


def owner(cls, name):
    return next(base.__name__ for base in cls.__mro__ if name in vars(base))
