"""Claims about recipes with few runs, by the deviation that the runs of others show."""

import attrs
import numpy as np
import pytest
from scored_runs import QUESTION, scored_run

from evsys.types import RecipeRuns
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.run_deviation import recipe_runs, run_deviation, with_own_runs

METRIC = QUESTION.name
ASKED = attrs.evolve(QUESTION, baseline="base")


def runs_of(*means, arm="old", experiment="20260101-000000-before", sampling=0.0):
    scores = {f"{arm}-s{i}": mean for i, mean in enumerate(means)}
    return RecipeRuns(experiment_id=experiment, arm=arm, scores=scores, sampling_variance=sampling)


def drawn(rng, name, mean, run=0, tasks=200):
    solved = int(rng.binomial(tasks, mean))
    return scored_run(name, solved, repeat=run, tasks=tasks, start=int(rng.integers(0, tasks - solved)))


def test_a_recipe_is_taken_apart_into_what_runs_and_what_samples_add():
    """Two runs that differ by a constant have no sampling error; two that differ task by task have nothing else."""
    tasks = np.linspace(0, 1, 50)
    shifted = recipe_runs("e", "a", ["0", "1"], np.stack([tasks, tasks + 0.1]))
    assert shifted.sampling_variance == pytest.approx(0.0, abs=1e-15)
    assert np.var(list(shifted.scores.values()), ddof=1) == pytest.approx(0.005)
    rng = np.random.default_rng(0)
    noisy = [
        recipe_runs("e", "a", ["0", "1"], tasks + rng.normal(0, 0.3, (2, 50))).sampling_variance
        for _ in range(400)
    ]
    assert np.mean(noisy) == pytest.approx(0.09 / 50, rel=0.05)


def test_the_deviation_pools_recipes_and_knows_less_the_more_they_differ():
    alike = run_deviation(METRIC, [runs_of(0.4, 0.5, 0.6), runs_of(0.1, 0.2, 0.3), runs_of(0.7, 0.8, 0.9)])
    assert alike.standard_deviation == pytest.approx(0.1)
    assert alike.runs == 9
    assert alike.experiments == ("20260101-000000-before",)
    apart = run_deviation(METRIC, [runs_of(0.4, 0.5, 0.6), runs_of(0.2, 0.2, 0.2), runs_of(0.5, 0.8, 1.1)])
    assert apart.freedom < alike.freedom < 6  # six degrees of freedom if all recipes had one variance


def test_more_recipes_tell_more_and_three_degrees_of_freedom_are_needed():
    found = [run_deviation(METRIC, [runs_of(0.4, 0.5)] * count) for count in (1, 2, 3, 6, 12, 50)]
    assert found[:2] == [None, None]
    freedom = [each.freedom for each in found[2:]]
    assert freedom == sorted(freedom)


def test_own_runs_draw_the_deviation_towards_theirs():
    known = run_deviation(METRIC, [runs_of(0.4, 0.5, 0.6)] * 3)
    same = with_own_runs(known, [runs_of(0.3)])
    assert (same.standard_deviation, same.freedom) == (known.standard_deviation, known.freedom)
    wide = with_own_runs(known, [runs_of(0.2, 0.8), runs_of(0.2, 0.8)])
    assert known.standard_deviation < wide.standard_deviation < np.std([0.2, 0.8], ddof=1)
    assert wide.freedom == known.freedom + 2


@pytest.mark.parametrize(("spread", "verdict"), [(0.005, "SUPPORTED"), (0.3, "INCONCLUSIVE")])
def test_one_run_supports_a_recipe_if_earlier_runs_hardly_differ(spread, verdict):
    rng = np.random.default_rng(0)
    results = [drawn(rng, "arm", 0.8), drawn(rng, "base", 0.3)]
    alone = conclude(ASKED, results)
    assert (alone.verdict, alone.subject) == ("SUPPORTED", "checkpoint")
    recipes = [runs_of(0.5, 0.5 + spread, 0.5 - spread, arm=f"a{i}") for i in range(4)]
    known = run_deviation(METRIC, recipes)
    conclusion = conclude(ASKED, results, deviation=known)
    assert (conclusion.verdict, conclusion.subject) == (verdict, "recipe")
    assert conclusion.run_deviation == known
    words = f"run-to-run deviation {spread:.3g}"
    assert "known from 12 runs of 20260101-000000-before" in conclusion.reason
    assert words in conclusion.reason.replace("0.300", "0.3").replace("0.0050", "0.005")
    checkpoint, recipe = conclusion.claims
    assert (checkpoint.subject, checkpoint.deviation) == ("checkpoint", None)
    assert recipe.deviation.standard_deviation == pytest.approx(spread)
    assert recipe.deviation.recipes == ()
    assert [c.outcome for c in conclusion.checkpoints] == ["win"]


def test_a_deviation_on_another_metric_says_nothing():
    rng = np.random.default_rng(0)
    results = [drawn(rng, "arm", 0.8), drawn(rng, "base", 0.3)]
    known = attrs.evolve(run_deviation(METRIC, [runs_of(0.4, 0.5, 0.6)] * 3), metric="other.mean_reward")
    assert conclude(ASKED, results, deviation=known).subject == "checkpoint"


def test_four_own_runs_need_no_others():
    rng = np.random.default_rng(1)
    results = [
        drawn(rng, name, mean, run) for name, mean in (("arm", 0.8), ("base", 0.3)) for run in range(4)
    ]
    known = run_deviation(METRIC, [runs_of(0.2, 0.5, 0.8)] * 3)
    with_others, alone = (conclude(ASKED, results, deviation=each) for each in (known, None))
    assert with_others.comparisons == alone.comparisons
    assert with_others.claims == alone.claims
