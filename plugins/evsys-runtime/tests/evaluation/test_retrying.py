"""Rollouts that are tried again."""

import asyncio

import pytest

from evsys.types import NoScore, Rollout, Score, Usage
from evsys_runtime.evaluation import retrying
from evsys_runtime.evaluation.retrying import with_retries

PASSING = NoScore(reason="gone", boundary="backend", retryable=True)
LASTING = NoScore(reason="wrong", boundary="rollout")
SCORE = Score(value=1.0)


def rollout(score, **fields) -> Rollout:
    usage = Usage(prompt_tokens=3, completion_tokens=2, seconds=0.5, cost_usd=0.25)
    return Rollout(task_id="t", sample_index=0, score=score, usage=usage, **fields)


@pytest.fixture
def waits(monkeypatch):
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    monkeypatch.setattr(retrying.asyncio, "sleep", sleep)
    return waited


def tried(outcomes, most=2, wait_seconds=1.0) -> tuple[Rollout, int]:
    left = list(outcomes)

    async def attempt():
        return left.pop(0)

    result = asyncio.run(with_retries(attempt, most=most, wait_seconds=wait_seconds))
    return result, len(outcomes) - len(left)


@pytest.mark.parametrize(
    ("scores", "most", "attempts"),
    [
        ([SCORE, SCORE], 2, 1),
        ([LASTING, SCORE], 2, 1),
        ([PASSING, SCORE], 0, 1),
        ([PASSING, SCORE, SCORE], 2, 2),
        ([PASSING, LASTING, SCORE], 2, 2),
        ([PASSING, PASSING, PASSING, SCORE], 2, 3),
    ],
)
def test_only_what_may_pass_is_tried_again_and_only_so_often(waits, scores, most, attempts):
    found, made = tried([rollout(score) for score in scores], most)
    assert made == attempts
    assert found.score == scores[attempts - 1]
    assert found.metadata == ({"attempts": attempts} if attempts > 1 else {})
    assert found.usage.prompt_tokens == 3 * attempts
    assert (found.usage.cost_usd, found.usage.seconds) == (0.25 * attempts, 0.5 * attempts)


def test_one_that_ran_out_of_time_is_not_tried_again(waits):
    assert tried([rollout(PASSING, timed_out=True), rollout(SCORE)])[1] == 1


def test_what_all_verdicts_took_is_counted(waits):
    busy = NoScore(reason="busy", retryable=True, usage=Usage(completion_tokens=10, cost_usd=1.0))
    silent, last = rollout(PASSING), Score(value=1.0, usage=Usage(completion_tokens=100, cost_usd=2.0))
    found, _ = tried([rollout(busy), silent, rollout(last)])
    assert found.score.value == 1.0
    assert (found.score.usage.completion_tokens, found.score.usage.cost_usd) == (110, 3.0)


def test_waits_double_up_to_a_minute(waits):
    tried([rollout(PASSING)] * 9, most=8)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
