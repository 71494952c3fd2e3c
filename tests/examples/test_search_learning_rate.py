"""A search that stops arms early, on the mock backend."""

import pytest


@pytest.fixture(scope="module")
def search(example):
    return example("search_learning_rate")


@pytest.fixture(scope="module")
def result(search):
    return search.run("search.params.arms=6", "run.algorithm.params.steps=24", "metadata.minimum_effect=0.05")


def test_its_script_writes_the_data_that_is_there(search):
    assert search.scripted() == search.data()


def test_arms_that_fall_behind_are_stopped_and_the_winner_is_confirmed(result):
    assert (result.status, result.exit_code) == ("completed", 0)
    chosen = [arm for arm in result.arms if arm.purpose == "candidate"]
    assert len(chosen) == 6
    stopped = [arm for arm in chosen if arm.run.stop_reason]
    assert 0 < len(stopped) < 6
    assert sum(arm.run.steps for arm in chosen) < 6 * 24 / 1.5
    assert [arm.arm for arm in result.arms[6:]] == [result.conclusion.best_arm] * 4
    assert result.conclusion.verdict == "SUPPORTED"


def test_more_is_learnt_with_more_of_a_learning_rate_than_the_lowest(result):
    rates = {arm.arm: float(arm.arm.split("-")[1]) for arm in result.arms}
    assert rates[result.conclusion.best_arm] > min(rates.values())
