"""The winner of three learning rates, confirmed on seeds and tasks that had no part in choosing it."""

import pytest


@pytest.fixture(scope="module")
def confirm(example):
    return example("confirm_winner")


@pytest.fixture(scope="module")
def result(confirm):
    return confirm.run()


def test_its_script_writes_the_data_that_is_there(confirm):
    assert confirm.scripted() == confirm.data()


def test_the_best_is_confirmed_by_fresh_runs_on_tasks_of_their_own(result):
    assert (result.status, result.exit_code) == ("completed", 0)
    conclusion = result.conclusion
    assert conclusion.verdict == "SUPPORTED"
    assert conclusion.confirmed.comparison.arm == conclusion.best_arm
    assert (conclusion.confirmed.benchmark, conclusion.confirmed.seeds) == ("final", 2)
    fresh = [arm for arm in result.arms if arm.purpose == "confirm"]
    assert [arm.repeat for arm in fresh] == [1, 1, 2, 2]
    scored = {e.benchmark for arm in result.arms if arm.purpose != "confirm" for e in arm.evaluations}
    assert scored == {"held_out"}


def test_equal_runs_of_the_baseline_show_the_noise(result):
    noise = result.conclusion.noise_floor
    assert len(noise.runs) == 3
    assert all(abs(c.effect) > noise.largest for c in result.conclusion.comparisons if c.outcome == "win")
