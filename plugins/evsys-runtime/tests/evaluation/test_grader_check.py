"""Graders are tried on answers that no model made."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from evsys import Registry, use_registry
from evsys.errors import VerifierError
from evsys.types import HarborTask, VerifierSpec
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.evaluation.benchmarks import bind_benchmark
from evsys_runtime.evaluation.grader_check import GraderCheck, check_grader


@pytest.fixture
def checked(registry: Registry) -> Callable[..., GraderCheck]:
    """Checks tasks `(expected, params)` of a verifier, with ids t0, t1, ..."""

    def check(verifier: Any, *expectations: Any, instruction: str = "well?", **options: Any) -> GraderCheck:
        registry.register("verifier", "mine", verifier)
        tasks = [
            HarborTask(
                task_id=f"t{place}",
                instruction=instruction,
                verifier=VerifierSpec(name="mine", expected=expected),
            )
            for place, expected in enumerate(expectations)
        ]
        return run(registry, tasks, **options)

    return check


def run(
    registry: Registry, tasks: Sequence[HarborTask], *, metrics: Sequence[str] = (), **options: Any
) -> GraderCheck:
    with use_registry(registry):
        entry = BenchmarkConfig(name="val", path="tasks.jsonl", metrics=tuple(metrics))
        bound = bind_benchmark(entry, tasks, registry=registry)
        return asyncio.run(check_grader(bound, registry, **options))


def equals(model_output, expected, params):
    return float(model_output == expected)


# --- what is a fault --------------------------------------------------------------------------------------------


def test_a_grader_that_tells_right_from_wrong_has_no_fault_and_no_warning(checked):
    check = checked(equals, "a", "b", "c")
    assert (check.faults, check.warnings, check.checked, check.unchecked) == ((), (), 3, {})
    [verifier] = check.verifiers
    assert verifier.oracle == "expected"
    assert verifier.full_marks == {
        **dict.fromkeys(("empty", "constant", "echo", "labels", "shuffled", "counterexample"), 0),
        "oracle": 3,
    }


def test_a_grader_that_passes_everything_is_a_fault_that_names_benchmark_and_tasks(checked):
    [fault] = checked(lambda model_output, expected, params: 1.0, "a", "b").faults
    assert fault.tasks == ("t0", "t1")
    assert (
        "benchmark 'val', task 't0' and 1 more: verifier 'mine' gives full marks to every answer"
        in fault.message
    )


class Errors:
    """Less is better, and 0 is right."""

    direction = "min"

    def compute(self, task_rewards):
        return sum(map(sum, task_rewards)) / sum(map(len, task_rewards))


class Regret(Errors):
    """Less is better, and a reward of 1 is right."""

    def compute(self, task_rewards):
        return 1 - super().compute(task_rewards)


def errors(model_output, expected, params):
    return 0.0 if model_output == expected else 3.0


def test_full_marks_are_the_lowest_reward_where_the_metric_wants_less(checked, registry):
    registry.register("metric", "errors", Errors)
    check = checked(errors, "a", "b", "c", metrics=["errors"])
    assert (check.faults, check.warnings) == ((), ())
    assert check.verifiers[0].full_marks["oracle"] == 3
    assert check.verifiers[0].full_marks["shuffled"] == 0


def test_a_grader_that_finds_no_error_in_any_answer_is_a_fault_where_the_metric_wants_less(checked, registry):
    registry.register("metric", "errors", Errors)
    [fault] = checked(lambda *_: 0.0, "a", "b", metrics=["errors"]).faults
    assert "gives full marks to every answer" in fault.message


def test_full_marks_are_the_highest_reward_where_that_makes_the_metric_least(checked, registry):
    registry.register("metric", "regret", Regret)
    check = checked(equals, "a", "b", "c", metrics=["regret"])
    assert (check.faults, check.verifiers[0].full_marks["oracle"]) == ((), 3)


def test_one_task_on_which_even_the_answer_of_another_passes_is_a_fault(checked):
    def mine(model_output, expected, params):
        return float(expected == "b" or model_output == expected)

    [fault] = checked(mine, "a", "b", "c").faults
    assert fault.tasks == ("t1",)


def test_a_fallback_that_passes_whatever_can_not_be_read_is_told_where_answers_of_others_still_fail(checked):
    def mine(model_output, expected, params):
        return float((model_output if model_output in "ABCD" and model_output else "A") == expected)

    check = checked(mine, "A", "B", "C")
    assert check.faults == ()
    assert (
        "an empty answer gets full marks from 'mine' on 1 of 3 checked tasks of 'val', first 't0'"
        in check.warnings
    )


class Declares:
    """A verifier with an oracle of its own."""

    def __call__(self, model_output, expected, params):
        return float(model_output == f"<{expected}>")

    def oracle(self, expected, params):
        return f"<{expected}>"


def test_an_oracle_that_a_verifier_declares_counts_instead_of_what_is_expected(checked):
    [verifier] = checked(Declares, "a", "b").verifiers
    assert (verifier.oracle, verifier.full_marks["oracle"]) == ("declared", 2)


def test_a_grader_that_fails_its_own_right_answer_is_a_fault_that_says_what_it_gave(checked):
    class Wrong(Declares):
        def oracle(self, expected, params):
            return str(expected)

    [fault] = checked(Wrong, "a", "b").faults
    assert fault.tasks == ("t0", "t1")
    assert "gives the right answer 'a' no full marks: 0" in fault.message


def test_a_grader_that_raises_on_the_right_answer_is_a_fault_that_says_what_it_raised(checked):
    class Raises(Declares):
        def __call__(self, model_output, expected, params):
            raise VerifierError("no such constraint")

    [fault] = checked(Raises, "a").faults
    assert "no such constraint" in fault.message


def test_an_async_oracle_is_awaited(checked):
    class Later(Declares):
        async def oracle(self, expected, params):
            return f"<{expected}>"

    assert checked(Later, "a", "b").verifiers[0].full_marks["oracle"] == 2


# --- what is none -----------------------------------------------------------------------------------------------


def test_an_answer_that_stands_in_every_prompt_is_a_warning(checked):
    def contains(model_output, expected, params):
        return float(expected in model_output)

    check = checked(contains, "cat", "dog", instruction="cat or dog?")
    assert check.faults == ()
    assert check.warnings == (
        "the echoed prompt gets full marks from 'mine' on 2 of 2 checked tasks of 'val', first 't0'",
    )


def test_where_saying_nothing_is_right_a_counterexample_shows_that_the_grader_sees_more(checked):
    class Silent:
        def __call__(self, model_output, expected, params):
            return float("call" not in model_output)

        def counterexample(self, expected, params):
            return "call"

    assert checked(Silent, None, None).faults == ()


def test_a_verifier_whose_expectation_is_no_answer_is_unknown_and_no_fault(checked):
    def mine(model_output, expected, params):
        return float(model_output == f"<{expected}>")

    check = checked(mine, "a", "b")
    assert (check.faults, check.verifiers[0].oracle) == ((), "unknown")


def test_a_grader_that_no_made_answer_passes_is_a_warning_that_names_the_task(checked):
    def wrong_case(model_output, expected, params):
        return float(model_output.lower() == expected)

    [warning] = checked(wrong_case, "Paris", "Rome").warnings
    assert warning == (
        "'mine' gives 0 to every answer that was made without a model, on 2 checked tasks of 'val', first 't0': "
        "none of those shows that an answer can pass"
    )


def test_a_grader_that_tells_any_made_answers_apart_is_not_warned_of(checked):
    def graded(model_output, expected, params):
        return 0.5 * float(model_output == expected)

    assert checked(graded, "a", "b").warnings == ()


def test_an_expectation_that_is_right_for_some_tasks_alone_is_a_warning(checked):
    def mine(model_output, expected, params):
        return float(model_output == expected and expected != "b")

    [warning] = checked(mine, "a", "b", "c").warnings
    assert "what is expected gets no full marks from 'mine' as an answer on 1 of 3 checked tasks" in warning
    assert "'t1'" in warning


def test_a_verifier_that_can_judge_nothing_without_a_trajectory_is_a_warning(checked):
    def mine(model_output, expected, params, rollout):
        return float(rollout.metadata["files"])

    check = checked(mine, "a")
    assert check.faults == ()
    assert "judged no answer that was made without a model" in check.warnings[0]


def test_rewards_beyond_one_are_measured_by_the_highest_that_was_given(checked):
    def mine(model_output, expected, params):
        return 100.0 if model_output == expected else 5.0

    assert checked(mine, "a", "b").faults == ()


def test_an_oracle_that_raises_is_a_warning(checked):
    class Lost(Declares):
        def oracle(self, expected, params):
            raise KeyError(expected)

    check = checked(Lost, "a")
    assert check.faults == ()
    assert "doesn't know the right answer for task 't0' of 'val': KeyError" in check.warnings[0]


# --- bounds -----------------------------------------------------------------------------------------------------


def test_what_is_wrong_with_the_oracle_on_many_tasks_is_one_warning(checked):
    class Broken:
        def __call__(self, model_output, expected, params):
            return float(model_output == "x")

        def oracle(self, expected, params):
            raise KeyError("answer")

    told = [warning for warning in checked(Broken, "a", "b", "c").warnings if "doesn't know" in warning]
    assert told == [
        "verifier 'mine' doesn't know the right answer for task 't0' and 2 more of 'val': KeyError: 'answer'"
    ]


def test_a_verifier_that_costs_money_is_not_called(checked):
    class Judge:
        free = False

        def __call__(self, model_output, expected, params):
            raise AssertionError("it was called")

    check = checked(Judge, "a", "b")
    assert (check.checked, check.unchecked) == (0, {"verifier 'mine' costs money": 2})


def test_a_verifier_that_calls_one_that_costs_money_is_not_called(registry):
    class Judge:
        free = False

        def __call__(self, model_output, expected, params):
            raise AssertionError("it was called")

    class Whole(Judge):
        free = True
        uses = ("judge",)

    registry.register("verifier", "judge", Judge)
    registry.register("verifier", "whole", Whole)
    task = HarborTask(task_id="t", instruction="", verifier=VerifierSpec(name="whole"))
    assert run(registry, [task]).checked == 0


def test_a_task_that_brings_its_own_tests_is_not_checked(registry):
    registry.register("rollout_engine", "harbor", registry.get("rollout_engine", "direct"))
    check = run(registry, [HarborTask(task_id="t", instruction="", path="native/t")])
    assert (check.checked, check.unchecked) == (0, {"its folder brings its own tests": 1})


def test_of_many_tasks_the_same_few_of_each_verifier_are_tried_each_time(registry):
    asked: list[str] = []

    def seen(model_output, expected, params):
        asked.append(expected)
        return equals(model_output, expected, params)

    registry.register("verifier", "seen", seen)
    tasks = [
        HarborTask(
            task_id=f"t{place}",
            instruction="?",
            verifier=VerifierSpec(name="seen" if place < 3 else "equals", expected=str(place)),
        )
        for place in range(100)
    ]
    first = run(registry, tasks, most_tasks=10, seed=3)
    chosen = set(asked)
    assert (first.checked, first.unchecked) == (10, {"not among the 10 drawn": 90})
    assert chosen == {"0", "1", "2"}  # the few of a small group are never drowned by a large one
    asked.clear()
    run(registry, tasks, most_tasks=10, seed=3)
    assert set(asked) == chosen


def test_a_grader_that_never_ends_is_left_at_the_deadline(checked):
    async def hangs(model_output, expected, params):
        await asyncio.Event().wait()

    check = checked(hangs, "a", "b", seconds=0.05)
    assert (check.checked, check.faults) == (0, ())
    assert check.unchecked == {"out of time after 0.05 s": 2}
    assert check.warnings == (
        "nothing is known of the graders of 'val': 'mine' judged no answer within 0.05 s",
    )


def test_a_grader_that_never_tells_what_is_right_is_left_at_the_deadline(checked):
    class Silent:
        def __call__(self, model_output, expected, params):
            return 0.0

        async def oracle(self, expected, params):
            await asyncio.Event().wait()

    check = checked(Silent, "a", "b", seconds=0.05)
    assert (check.checked, check.faults) == (0, ())
    assert check.unchecked == {"out of time after 0.05 s": 2}


def test_a_right_answer_of_another_task_that_passes_is_a_warning(checked):
    def contains(model_output, expected, params):
        return float(expected in model_output)

    _, warning = checked(contains, "safe", "unsafe", "safe").warnings
    assert (
        "the right answer of another task gets full marks from 'mine' on 2 of 3 checked tasks of 'val', first 't0' ('unsafe')"
        in warning
    )


@pytest.mark.parametrize(
    "answers",
    [("refund", "exchange", "not refundable"), ("12", "7", "112"), ("safe", "other", "unsafe")],
    ids=["negation", "number", "label"],
)
def test_an_answer_that_contains_the_right_one_is_tried_wherever_it_stands(checked, answers):
    def contains(model_output, expected, params):
        return float(expected in model_output)

    [warning] = checked(contains, *answers).warnings
    assert f"on 1 of 3 checked tasks of 'val', first 't0' ({answers[-1]!r})" in warning


# --- labels -----------------------------------------------------------------------------------------------------


def contains(model_output, expected, params):
    return float(expected in model_output)


def test_an_answer_that_lists_all_labels_is_tried(checked):
    check = checked(contains, "bug", "idea", "bug", "praise")
    assert check.verifiers[0].full_marks["labels"] == 4
    assert check.faults == ()
    assert [warning for warning in check.warnings if "lists all labels" in warning] == [
        "an answer that lists all labels gets full marks from 'mine' on 4 of 4 checked tasks of 'val', first 't0'"
    ]


def test_an_exact_grader_takes_no_list_of_labels(checked):
    check = checked(equals, "bug", "idea", "bug", "praise")
    assert (check.verifiers[0].judged["labels"], check.warnings) == (4, ())


@pytest.mark.parametrize("answers", [("a", "b", "c"), ("a", "a", "a")])
def test_answers_that_differ_from_task_to_task_or_not_at_all_are_no_labels(checked, answers):
    assert checked(contains, *answers).verifiers[0].judged["labels"] == 0
