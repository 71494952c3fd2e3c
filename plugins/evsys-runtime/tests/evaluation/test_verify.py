import asyncio
import math
import threading
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import ConfigError, PluginNotFoundError, RolloutError
from evsys.types import HarborTask, NoScore, Rollout, Score, VerifierSpec
from evsys_runtime.evaluation.verify import bind_verifier, make_verify, to_score


def judge(
    registry, plugin: Any, output: str = "yes", *, timeout: float = 5.0, **spec: Any
) -> Score | NoScore:
    """The verdict of one verifier on one output."""
    registry.register("verifier", "mine", plugin)
    task = HarborTask(task_id="t", instruction="", verifier=VerifierSpec(name="mine", **spec))
    rollout = Rollout(task_id="t", sample_index=0, output=output)
    return asyncio.run(make_verify(registry, timeout_seconds=timeout)(task, rollout))


# --- how verifiers are called -----------------------------------------------------------------------------------


def test_a_function_gets_output_expected_and_params(registry):
    def mine(model_output, expected, params):
        assert (model_output, expected, params) == ("yes", {"a": 1}, {"b": 2})
        return 0.5

    assert judge(registry, mine, expected={"a": 1}, params={"b": 2}) == Score(value=0.5)


def test_an_async_function_is_awaited(registry):
    async def mine(model_output, expected, params):
        await asyncio.sleep(0)
        return 0.25

    assert judge(registry, mine) == Score(value=0.25)


def test_an_argument_named_rollout_receives_the_rollout(registry):
    def mine(model_output, expected, params, rollout):
        return float(isinstance(rollout, Rollout) and rollout.output == model_output)

    assert judge(registry, mine) == Score(value=1.0)


def test_a_class_is_built_from_its_params_and_sees_them_when_called(registry):
    class Mine:
        @attrs.frozen(kw_only=True)
        class Config:
            threshold: float = 0.5

        def __init__(self, threshold: float) -> None:
            self.threshold = threshold

        def __call__(
            self, model_output: str, expected: Any, params: Mapping[str, Any], *, rollout: Rollout
        ) -> float:
            assert params == {"threshold": 0.75}
            assert rollout.task_id == "t"
            return self.threshold

    assert judge(registry, Mine, params={"threshold": 0.75}) == Score(value=0.75)


def test_a_function_with_a_config_gets_the_defaults_of_its_params_too(registry):
    def mine(model_output, expected, params, rollout):
        assert threading.current_thread() is not threading.main_thread()
        return params["base"] + params["weight"] * (rollout.task_id == "t")

    mine.Config = attrs.make_class(
        "Config",
        {"weight": attrs.field(type=float, default=0.25), "base": attrs.field(type=float, default=0.5)},
    )
    mine.blocking = True
    assert judge(registry, mine, params={"weight": 0}) == Score(value=0.5)
    assert judge(registry, mine) == Score(value=0.75)


def test_a_class_without_a_config_gets_its_params_when_called(registry):
    class Mine:
        def __call__(self, model_output, expected, params):
            return params["value"]

    assert judge(registry, Mine, params={"value": 0.3}) == Score(value=0.3)


def test_a_class_with_an_async_call_is_awaited(registry):
    class Mine:
        async def __call__(self, model_output, expected, params):
            return True

    assert judge(registry, Mine) == Score(value=1.0)


def test_a_verifier_that_says_it_blocks_is_called_in_a_thread(registry):
    def plain(model_output, expected, params):
        return float(threading.current_thread() is threading.main_thread())

    def blocking(model_output, expected, params):
        return plain(model_output, expected, params)

    blocking.blocking = True
    assert judge(registry, plain) == Score(value=1.0)
    registry.register("verifier", "other", blocking)
    task = HarborTask(task_id="t", instruction="", verifier=VerifierSpec(name="other"))
    rollout = Rollout(task_id="t", sample_index=0)
    assert asyncio.run(make_verify(registry)(task, rollout)) == Score(value=0.0)


def test_a_verifier_is_built_once_for_each_set_of_params(registry):
    built = []

    class Mine:
        @attrs.frozen(kw_only=True)
        class Config:
            n: int = 0

        def __init__(self, n: int) -> None:
            built.append(n)
            self.n = n

        def __call__(self, model_output, expected, params):
            return self.n

    registry.register("verifier", "mine", Mine)
    verify = make_verify(registry)

    async def verdicts() -> list[float]:
        rollout = Rollout(task_id="t", sample_index=0)
        specs = [VerifierSpec(name="mine", params={"n": n}) for n in (1, 2, 1, 2, 1)]
        return [
            (await verify(HarborTask(task_id="t", instruction="", verifier=s), rollout)).value for s in specs
        ]

    assert asyncio.run(verdicts()) == [1, 2, 1, 2, 1]
    assert built == [1, 2]


# --- what they may return ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (True, 1.0),
        (False, 0.0),
        (np.float32(0.5), 0.5),
        (np.int64(2), 2.0),
        (np.bool_(True), 1.0),
        (-3, -3.0),
    ],
)
def test_numbers_of_all_kinds_are_scores(said, value):
    score = to_score(said, "mine")
    assert score == Score(value=value)
    assert type(score.value) is float


def test_a_score_keeps_its_components_and_facts():
    score = Score(value=1, components={"a": 0.5}, metadata={"why": "because"})
    assert to_score(score, "mine") == score


def test_a_missing_score_keeps_its_reason_and_gets_the_verifiers_boundary():
    assert to_score(NoScore(reason="no judge", retryable=True), "mine") == NoScore(
        reason="no judge", retryable=True, boundary="verifier"
    )
    assert to_score(NoScore(reason="x", boundary="environment"), "mine").boundary == "environment"


@pytest.mark.parametrize(
    "said",
    [
        math.nan,
        math.inf,
        -math.inf,
        np.float64("nan"),
        Score(value=math.nan),
        Score(value=1.0, components={"part": math.inf}),
    ],
)
def test_what_is_not_finite_is_no_score_and_never_zero(said):
    score = to_score(said, "mine")
    assert isinstance(score, NoScore)
    assert score.boundary == "verifier"
    assert "no finite number" in score.reason


@pytest.mark.parametrize(
    "said", [None, "1.0", b"1", [1.0], {"reward": 1.0}, np.array([1.0, 2.0]), object(), 10**400]
)
def test_what_is_no_number_is_no_score_and_never_zero(said):
    score = to_score(said, "mine")
    assert isinstance(score, NoScore)
    assert "'mine' returned" in score.reason


def test_an_object_is_named_by_its_class_so_that_equal_failures_read_alike():
    def judge_later():
        yield 1.0

    assert to_score(judge_later(), "mine").reason == (
        "verifier 'mine' returned a generator, not a number, Score or NoScore"
    )


def test_a_verifier_that_exits_gives_no_score(registry):
    def mine(model_output, expected, params):
        raise SystemExit(0)

    score = judge(registry, mine)
    assert (score.boundary, score.reason) == ("verifier", "verifier 'mine': SystemExit: 0")


@given(st.floats())
def test_a_score_is_finite_or_absent(value):
    score = to_score(value, "mine")
    assert isinstance(score, Score) == math.isfinite(value)


# --- failures ---------------------------------------------------------------------------------------------------


def test_a_verifier_that_raises_gives_no_score_and_never_zero(registry):
    def mine(model_output, expected, params):
        raise KeyError("answer")

    score = judge(registry, mine)
    assert score == NoScore(reason="verifier 'mine': KeyError: 'answer'", boundary="verifier")


def test_a_verifier_that_lost_its_service_may_be_asked_again(registry):
    async def mine(model_output, expected, params):
        raise ConnectionResetError("gone")

    score = judge(registry, mine)
    assert score.retryable
    assert "gone" in score.reason


def test_a_verifier_that_never_answers_is_given_up(registry):
    async def mine(model_output, expected, params):
        await asyncio.Event().wait()

    score = judge(registry, mine, timeout=0.01)
    assert score == NoScore(
        reason="verifier 'mine': no verdict within 0.01 s", boundary="verifier", retryable=True
    )


def test_a_verifiers_own_timeout_is_told_apart_from_ours(registry):
    def mine(model_output, expected, params):
        raise TimeoutError("pattern too slow")

    assert judge(registry, mine).reason == "verifier 'mine': TimeoutError: pattern too slow"


def test_ending_the_run_is_no_verdict(registry):
    async def mine(model_output, expected, params):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        judge(registry, mine)


@pytest.mark.parametrize("kind", ["plain", "async", "awaiting"])
def test_a_cancellation_that_a_verifier_raises_by_itself_is_a_missing_score(registry, kind):
    def plain(model_output, expected, params):
        raise asyncio.CancelledError

    async def raising(model_output, expected, params):
        raise asyncio.CancelledError

    async def awaiting(model_output, expected, params):
        inner = asyncio.ensure_future(asyncio.sleep(9))
        inner.cancel()
        await inner

    mine = {"plain": plain, "async": raising, "awaiting": awaiting}[kind]
    assert judge(registry, mine) == NoScore(
        reason="verifier 'mine': it raised CancelledError by itself", boundary="verifier"
    )


def test_a_rollout_that_crashed_is_not_judged(registry):
    def mine(model_output, expected, params):
        return 1.0

    registry.register("verifier", "mine", mine)
    task = HarborTask(task_id="t", instruction="", verifier=VerifierSpec(name="mine"))
    verify = make_verify(registry)
    crashed = Rollout(task_id="t", sample_index=0, output="yes", error="boom")
    assert asyncio.run(verify(task, crashed)) == NoScore(reason="boom", boundary="rollout")
    assert asyncio.run(verify(task, attrs.evolve(crashed, score=Score(value=1.0)))).reason == "boom"
    told = attrs.evolve(crashed, score=NoScore(reason="lost", boundary="backend"))
    assert asyncio.run(verify(task, told)) == NoScore(reason="lost", boundary="backend")


def test_a_task_without_a_verifier_or_with_an_unknown_one_gets_no_score(registry):
    verify = make_verify(registry)
    rollout = Rollout(task_id="t", sample_index=0)
    none = asyncio.run(verify(HarborTask(task_id="t", instruction=""), rollout))
    assert "has no verifier" in none.reason
    unknown = HarborTask(task_id="t", instruction="", verifier=VerifierSpec(name="absent"))
    score = asyncio.run(verify(unknown, rollout))
    assert isinstance(score, NoScore)
    assert "absent" in score.reason


def test_an_error_that_was_attributed_before_keeps_its_words(registry):
    def mine(model_output, expected, params):
        raise RolloutError("no sandbox", hint="start one")

    assert judge(registry, mine).reason == "verifier 'mine': no sandbox; start one"


# --- binding ----------------------------------------------------------------------------------------------------


def test_a_misspelt_param_is_a_problem_before_anything_runs(registry):
    class Mine:
        @attrs.frozen(kw_only=True)
        class Config:
            threshold: float = 0.5

        def __init__(self, threshold: float) -> None: ...

        def __call__(self, model_output, expected, params):
            return 1.0

    registry.register("verifier", "mine", Mine)
    with pytest.raises(ConfigError, match="treshold") as caught:
        bind_verifier(VerifierSpec(name="mine", params={"treshold": 1}), registry, path="$.verifier")
    assert caught.value.problems[0].path.startswith("$.verifier.params")


def test_an_unknown_verifier_is_named(registry):
    with pytest.raises(PluginNotFoundError, match="eqals"):
        bind_verifier(VerifierSpec(name="eqals"), registry)


def test_check_asks_the_verifier_itself(registry):
    class Mine:
        def __call__(self, model_output, expected, params):
            return 1.0

        def check(self, expected):
            raise ValueError(f"can't judge by {expected}")

    registry.register("verifier", "mine", Mine)
    with pytest.raises(ValueError, match="can't judge by 3"):
        bind_verifier(VerifierSpec(name="mine"), registry).check(3)
    bind_verifier(VerifierSpec(name="equals"), registry).check(3)
