"""How often the verdict is wrong where the truth is known: simulated experiments, few here, many with `-m slow`.

The bounds of the fast share leave room for its simulation error (three of its standard errors); the slow one has thousands of
experiments each, and the bounds that are promised.
"""

import functools
import sys

import attrs
import numpy as np
import pytest
from simulated_experiments import may_win, trained

from evsys_runtime.config.model.experiment import ConfirmConfig
from evsys_runtime.experiment.verdict import comparison as comparing
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.confirmation import Confirming
from evsys_runtime.experiment.verdict.noise import noise_floor, with_limit
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.run_deviation import recipe_runs, run_deviation, with_own_runs
from evsys_stats.claims import claim_p
from evsys_stats.corrections import bonferroni, corrected
from evsys_stats.paired import Pair, paired_differences, wild_bootstrap
from evsys_stats.recipe import errors_with, recipe_claim

QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
)
LEVEL = 0.05
MOST_SIGMA = 3.0


def figure(text):
    """Show a simulated share with `-s`."""
    sys.stdout.write(f"{text}\n")


def room(share, trials):
    return MOST_SIGMA * (share * (1 - share) / trials) ** 0.5


def outcomes(rng, chance, tasks):
    """One 0/1 outcome a task."""
    return (rng.random(tasks) < chance).astype(float)


@pytest.fixture(autouse=True)
def few_flips(monkeypatch):
    """A p-value of random flips that counts the data itself holds at any number of them (Phipson & Smyth 2010); these take a fifth of the time."""
    monkeypatch.setattr(comparing, "DRAWS", 2000)


def asked(question, results, differences, number, **extra):
    """The verdict; experiments in which no difference of tasks, [n] each, can win are asked only now and then, to be sure of that."""
    possible = any(map(may_win, differences))
    if not possible and number % 25:
        return "INCONCLUSIVE", None
    conclusion = conclude(question, results(), **extra)
    assert possible or conclusion.verdict != "SUPPORTED"
    return conclusion.verdict, conclusion.subject


def of_chances(rng, chances, *, partial):
    """Rewards of tasks by their chances, of any shape: 0 or 1, or a part of four."""
    chances = np.clip(chances, 0.0, 1.0)
    return rng.binomial(4, chances) / 4 if partial else (rng.random(chances.shape) < chances).astype(float)


def share(trials, *, fast):
    """A test's trials: few by default, many with `-m slow`."""
    return [pytest.param(fast, id="few"), pytest.param(trials, id="many", marks=pytest.mark.slow)]


def clustered_null(rng, groups):
    """Differences of equal arms on clusters of unequal size whose tasks have much in common."""
    clusters = np.repeat(np.arange(groups), rng.integers(1, 12, groups))
    return rng.normal(size=groups)[clusters] + rng.normal(size=len(clusters)), clusters


@pytest.mark.parametrize("trials", share(6000, fast=500))
@pytest.mark.parametrize("groups", [8, 9, 12, 20, 40, 100])
def test_one_comparison_of_equal_arms_is_significant_in_3_to_7_of_100(groups, trials):
    rng = np.random.default_rng(groups)
    rejected = np.mean(
        [
            wild_bootstrap(*clustered_null(rng, groups), draws=1000, seed=seed).p_value <= LEVEL
            for seed in range(trials)
        ]
    )
    allowed = room(LEVEL, trials) if trials < 1000 else 0.0
    assert 0.03 - allowed <= rejected <= 0.07 + allowed


@pytest.mark.parametrize("trials", share(20_000, fast=3000))
@pytest.mark.parametrize("tasks", [10, 30, 200])
def test_mcnemar_of_equal_arms_is_significant_in_at_most_7_of_100(tasks, trials):
    rng = np.random.default_rng(tasks)
    found = paired_differences(
        [
            Pair(arm=outcomes(rng, chance, tasks), baseline=outcomes(rng, chance, tasks))
            for chance in rng.uniform(0.1, 0.9, trials)
        ],
        binary=True,
    )
    assert np.mean([one.p_value <= LEVEL for one in found]) <= 0.07


@pytest.mark.parametrize("trials", share(2000, fast=60))
@pytest.mark.parametrize("arms", [2, 5, 20])
@pytest.mark.parametrize("shifts", ["equal", "half_better"])
def test_a_family_of_arms_has_a_false_find_in_at_most_5_of_100(arms, shifts, trials):
    """They share a baseline and its luck, so their comparisons are correlated. Arms that differ don't count as false."""
    rng = np.random.default_rng(arms)
    truth = np.where(np.arange(arms) % 2 == 1, 0.8, 0.0) if shifts == "half_better" else np.zeros(arms)
    false = {"bonferroni": 0, "westfall-young": 0}
    held = 0
    for seed in range(trials):
        names = tuple(map(str, range(60)))
        tasks = rng.normal(size=60)
        baseline = tasks + rng.normal(size=60)
        pairs = [
            Pair(arm=tasks + shift + rng.normal(size=60), baseline=baseline, tasks=names) for shift in truth
        ]
        found = paired_differences(pairs, draws=1000, seed=seed)
        p_values = [one.p_value for one in found]
        family = corrected(found, p_values, family=arms, level=LEVEL, at_zero=True)
        assert family.method == "westfall-young"
        for name, made in (("bonferroni", bonferroni(p_values)), ("westfall-young", family.p_values)):
            false[name] += any(p <= LEVEL for p, shift in zip(made, truth, strict=True) if shift == 0)
        ends = [one.interval(family.single_level) for one in found]
        held += all(low <= shift <= high for (low, high), shift in zip(ends, truth, strict=True))
    allowed = LEVEL + room(LEVEL, trials)
    shares = {name: f"{100 * count / trials:.2f} %" for name, count in false.items()}
    figure(f"{shares}, all held {held / trials:.3f}")
    assert false["bonferroni"] <= false["westfall-young"] <= allowed * trials
    assert held / trials >= 1 - allowed


@pytest.mark.parametrize("trials", share(3000, fast=300))
@pytest.mark.parametrize("groups", [8, 20, 60])
def test_intervals_hold_the_truth_in_at_least_93_of_100(groups, trials):
    rng = np.random.default_rng(100 + groups)
    held = 0
    for seed in range(trials):
        noise, clusters = clustered_null(rng, groups)
        found = wild_bootstrap(noise + 0.4, clusters, draws=1000, seed=seed)
        held += found.low <= 0.4 <= found.high
    assert held / trials >= 0.93 - (room(0.05, trials) if trials < 1000 else 0.0)


@pytest.mark.parametrize("trials", share(3000, fast=250))
@pytest.mark.parametrize("runs", [(4, 1), (4, 4), (6, 5)], ids=str)
@pytest.mark.parametrize("by_seed", [0.0, 0.2, 1.0])
def test_equal_recipes_are_told_apart_in_at_most_7_of_100_however_much_their_runs_differ(
    runs, by_seed, trials
):
    rng = np.random.default_rng(sum(runs))
    wrong = 0
    for seed in range(trials):
        tasks = rng.normal(size=40)
        arm, base = (
            tasks + by_seed * rng.normal(size=(count, 1)) * (count > 1) + 0.5 * rng.normal(size=(count, 40))
            for count in runs
        )
        (checkpoint,) = paired_differences(
            [Pair(arm=arm.mean(axis=0), baseline=base.mean(axis=0))], draws=400, seed=seed
        )
        wrong += recipe_claim(checkpoint, arm, base).p_value <= LEVEL
    assert wrong / trials <= 0.07 + (room(LEVEL, trials) if trials < 1000 else 0.0)


@pytest.mark.parametrize("trials", share(2000, fast=60))
@pytest.mark.parametrize("samples", [1, 4])
def test_training_that_changes_nothing_is_never_supported(trials, samples):
    """A learning rate of 0 scores as the untrained model does, whatever that is and however many repeats."""
    rng = np.random.default_rng(samples)
    for _ in range(trials):
        tasks, repeats = int(rng.integers(10, 80)), int(rng.integers(1, 6))
        same = (rng.random((tasks, samples)) < rng.random()).astype(float)
        for minimum in (0.0, 0.05):
            conclusion = conclude(
                attrs.evolve(QUESTION, margin=minimum),
                [trained("a", same, same, repeat) for repeat in range(repeats)],
            )
            assert conclusion.verdict in ("INCONCLUSIVE", "REFUTED")


@pytest.mark.parametrize("trials", share(700, fast=60))
def test_a_harmful_recipe_is_refuted(trials):
    """From 60 % solved to 30 % on 100 tasks, one run or five: a loss, and never a win."""
    rng = np.random.default_rng(3)
    refuted = 0
    for trial in range(trials):
        before = outcomes(rng, 0.6, 100)
        repeats = [
            trained("a", before, outcomes(rng, 0.3, 100), repeat) for repeat in range((1, 5)[trial % 2])
        ]
        verdict = conclude(QUESTION, repeats).verdict
        assert verdict in ("REFUTED", "INCONCLUSIVE")
        refuted += verdict == "REFUTED"
    assert refuted / trials >= 0.95


@pytest.mark.parametrize("trials", share(1000, fast=80))
def test_twenty_equal_arms_have_a_false_winner_in_at_most_5_of_100_sweeps(trials):
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(trials):
        hardness = rng.random(40)
        before = outcomes(rng, hardness, 40)
        conclusion = conclude(
            QUESTION, [trained(f"a{i}", before, outcomes(rng, hardness, 40)) for i in range(20)]
        )
        assert conclusion.verdict != "SUPPORTED"
        wrong += any(c.outcome == "win" for c in conclusion.comparisons)
    assert wrong / trials <= LEVEL + room(LEVEL, trials)


@pytest.mark.parametrize("trials", share(2000, fast=40))
@pytest.mark.parametrize("partial", [False, True], ids=["binary", "partial"])
@pytest.mark.parametrize("by_seed", [0.0, 0.04])
@pytest.mark.parametrize("baseline", ["base_model", "base"])
def test_the_best_of_twenty_equal_recipes_is_confirmed_in_at_most_5_of_100_sweeps(
    baseline, by_seed, partial, trials
):
    """By the default confirmation; whoever is best is tried once more, whether that was a win or not."""
    rng = np.random.default_rng(10)
    seeds = ConfirmConfig().expected_seeds
    wrong = 0
    for number in range(trials):
        hardness = rng.uniform(0.1, 0.9, 40)

        def rewards(runs, hardness=hardness):
            shifts = by_seed * rng.normal(size=(runs, 1))
            return of_chances(rng, hardness + shifts, partial=partial)

        before, arms, base = of_chances(rng, hardness, partial=partial), rewards(20), rewards(1 + seeds)
        best = int(arms.mean(axis=1).argmax())
        fresh = rewards(seeds)
        untrained = [of_chances(rng, hardness, partial=partial) for _ in range(seeds)]
        against = np.mean(untrained if baseline == "base_model" else base[1:], axis=0)
        wrong += (
            confirmed(baseline, before, arms, base, best, fresh, untrained, against, number) == "SUPPORTED"
        )
    figure(f"best of 20 equal arms confirmed: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + (room(LEVEL, trials) if trials < 2000 else 0.0)


def confirmed(baseline, before, arms, base, best, fresh, untrained, against, number):
    """The verdict of a sweep whose best arm was trained anew, and so was the baseline unless it is the untrained model."""

    def results():
        first = [trained(f"a{i}", before, row) for i, row in enumerate(arms)]
        again = [
            trained(f"a{best}", start, row, 1 + i, purpose="confirm")
            for i, (start, row) in enumerate(zip(untrained, fresh, strict=True))
        ]
        if baseline == "base":
            first.append(trained("base", before, base[0]))
            again += [
                trained("base", before, row, 1 + i, purpose="confirm") for i, row in enumerate(base[1:])
            ]
        return [*first, *again]

    question, seeds = attrs.evolve(QUESTION, baseline=baseline), len(fresh)
    planned = {f"a{best}": seeds} | ({} if baseline == "base_model" else {"base": seeds})
    asked_again = Confirming(question=question, winner=f"a{best}", seeds=seeds, planned=planned)
    difference = fresh.mean(axis=0) - against
    return asked(question, results, [difference], number, confirming=asked_again)[0]


@pytest.mark.parametrize("trials", share(2000, fast=40))
def test_the_best_of_twenty_equal_arms_that_is_trained_once_more_is_supported_in_at_most_5_of_100(trials):
    """A single fresh run supports this checkpoint only, which is as good as the others."""
    rng = np.random.default_rng(11)
    wrong = sum(confirmed_sweep(rng, 1, gain=0.0).verdict == "SUPPORTED" for _ in range(trials))
    figure(f"best of 20 equal arms confirmed by one run: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + (room(LEVEL, trials) if trials < 2000 else 0.0)


@pytest.mark.parametrize("trials", share(300, fast=12))
@pytest.mark.parametrize("seeds", [1, 4])
def test_an_arm_that_is_better_among_twenty_is_confirmed(trials, seeds):
    rng = np.random.default_rng(20 + seeds)
    found = sum(confirmed_sweep(rng, seeds, gain=0.35).verdict == "SUPPORTED" for _ in range(trials))
    assert found / trials >= 0.9


def confirmed_sweep(rng, seeds, *, gain):
    """Twenty arms against the untrained model on 40 tasks, one of them better by `gain`; the best is tried once more."""
    hardness = rng.random(40) * (1 - gain)
    arms = [
        trained(f"a{i}", outcomes(rng, hardness, 40), outcomes(rng, hardness + gain * (i == 7), 40))
        for i in range(20)
    ]
    best = max(arms, key=lambda arm: arm.evaluations[-1].metrics["mean_reward"].value)
    truth = hardness + gain * (best.arm == "a7")
    again = [
        trained(best.arm, outcomes(rng, hardness, 40), outcomes(rng, truth, 40), repeat, purpose="confirm")
        for repeat in range(1, seeds + 1)
    ]
    asked = Confirming(question=QUESTION, winner=best.arm, seeds=seeds, planned={best.arm: seeds})
    return conclude(QUESTION, [*arms, *again], confirming=asked)


@pytest.mark.parametrize("trials", share(700, fast=60))
@pytest.mark.parametrize("controls", [1, 4, 19])
def test_an_equal_run_exceeds_the_noise_of_its_controls_in_at_most_5_of_100_experiments(controls, trials):
    """One run an arm, and runs of one recipe differ: the test on tasks alone takes every other one for a difference."""
    rng = np.random.default_rng(30 + controls)
    alone = floored = 0
    for _ in range(trials):
        results, question = noisy(rng, controls, effect=0.0)
        alone += conclude(question, results).comparisons[0].outcome in ("win", "loss")
        noise = noise_floor(question, results)
        floored += conclude(question, results, noise=noise).comparisons[0].outcome in ("win", "loss")
    assert alone / trials > 0.3
    assert floored / trials <= LEVEL + room(LEVEL, trials)


@pytest.mark.parametrize("trials", share(2000, fast=30))
@pytest.mark.parametrize("controls", [2, 5])
@pytest.mark.parametrize("by_seed", [0.0, 0.04, 0.1])
@pytest.mark.parametrize("kind", ["binary", "partial", "normal"])
def test_one_of_twenty_equal_arms_exceeds_the_noise_in_at_most_5_of_100_sweeps(
    kind, by_seed, controls, trials
):
    """On either side. Sweeps without any arm above the limit are asked only now and then."""
    rng = np.random.default_rng(60 + controls)
    wrong = 0
    question = attrs.evolve(QUESTION, baseline="base")
    for number in range(trials):
        tasks = rng.uniform(0.2, 0.8, 60)
        shifts = by_seed * rng.normal(size=(21 + controls, 1))
        if kind == "normal":
            scores = tasks + shifts + rng.normal(0.0, 0.2, (len(shifts), 60))
        else:
            scores = of_chances(rng, tasks + shifts, partial=kind == "partial")
        equal = [trained("base", None, scores[0])] + [
            trained("base-control", None, row, 1 + i, purpose="control") for i, row in enumerate(scores[21:])
        ]
        noise = noise_floor(question, equal)
        limit = with_limit(noise, 20, question.level).limit
        above = bool((np.abs(scores[1:21].mean(axis=1) - scores[0].mean()) > limit).any())
        if not above and number % 25:
            continue
        arms = [trained(f"arm{i}", None, row) for i, row in enumerate(scores[1:21])]
        conclusion = conclude(question, [*equal, *arms], noise=noise)
        found = any(c.outcome in ("win", "loss") for c in conclusion.comparisons)
        assert above or not found
        wrong += found
    figure(f"one of 20 equal arms above the noise: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + room(LEVEL, trials)


@pytest.mark.parametrize("trials", share(500, fast=40))
def test_an_effect_far_above_the_noise_is_still_a_win(trials):
    rng = np.random.default_rng(40)
    won = 0
    for _ in range(trials):
        results, question = noisy(rng, 4, effect=0.8)
        won += conclude(question, results, noise=noise_floor(question, results)).verdict == "SUPPORTED"
    assert won / trials >= 0.9


def noisy(rng, controls, *, effect, arms=1):
    """A baseline, its controls and an arm, one run each, whose means differ by chance far beyond what tasks explain."""
    tasks = rng.normal(0.0, 0.3, 60)

    def run(name, shift, repeat=0, purpose="candidate"):
        scores = tasks + shift + rng.normal(0.0, 0.1) + rng.normal(0.0, 0.2, 60)
        return attrs.evolve(trained(name, tasks, scores, repeat), purpose=purpose)

    equal = [run("base-control", 0.0, 1 + repeat, "control") for repeat in range(controls)]
    compared = [run(f"arm{i}", effect) for i in range(arms)]
    return [run("base", 0.0), *compared, *equal], attrs.evolve(QUESTION, baseline="base")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("repeats", [1, 4])
def test_swapping_arms_mirrors_the_verdict(seed, repeats):
    rng = np.random.default_rng(seed)
    before = rng.random(40)
    arms = {
        name: [trained(name, before, np.clip(rng.normal(mean, 0.3, 40), 0, 1), r) for r in range(repeats)]
        for name, mean in (("a", 0.5), ("b", 0.5 + 0.05 * seed))
    }
    results = [result for group in arms.values() for result in group]
    one = conclude(attrs.evolve(QUESTION, baseline="a", margin=0.02), results)
    two = conclude(attrs.evolve(QUESTION, baseline="b", margin=0.02), results)
    mirrored = {"win": "loss", "loss": "win"}
    assert one.comparisons[0].claim == ("recipe" if repeats == 4 else "checkpoint")
    for mine, theirs in zip(
        (*one.comparisons, *one.checkpoints), (*two.comparisons, *two.checkpoints), strict=True
    ):
        assert mine.outcome == mirrored.get(theirs.outcome, theirs.outcome)
        assert mine.effect == pytest.approx(-theirs.effect)
        assert mine.p_corrected == pytest.approx(theirs.p_corrected)
        assert (mine.low, mine.high) == pytest.approx((-theirs.high, -theirs.low))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("repeats", [1, 4])
def test_the_order_of_tasks_changes_no_bit(seed, repeats):
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, 15, 50) if seed % 2 else None
    results = [trained("a", rng.random(50), rng.random(50) + 0.1, r, clusters) for r in range(repeats)]

    def shuffled(evaluation):
        order = rng.permutation(list(evaluation.task_rewards))
        return attrs.evolve(
            evaluation,
            task_rewards={task: evaluation.task_rewards[task] for task in order},
            clusters={task: evaluation.clusters[task] for task in order if evaluation.clusters},
        )

    mixed = [attrs.evolve(result, evaluations=tuple(map(shuffled, result.evaluations))) for result in results]
    one, two = conclude(QUESTION, results), conclude(QUESTION, mixed)
    assert one.comparisons == two.comparisons
    assert one.checkpoints == two.checkpoints


@pytest.mark.parametrize("trials", share(2000, fast=60))
@pytest.mark.parametrize(("tasks", "samples"), [(200, 1), (100, 4)])
def test_equal_arms_of_which_one_loses_its_wrong_answers_are_supported_in_at_most_5_of_100(
    trials, tasks, samples
):
    """5 % of one side's rollouts have no score, and all of those were wrong."""
    rng = np.random.default_rng(tasks)
    wrong = 0
    for number in range(trials):
        hardness = rng.random((tasks, 1)) * np.ones((tasks, samples))
        before, after = (outcomes(rng, hardness, (tasks, samples)) for _ in range(2))
        after = without_wrong_ones(rng, after, 0.05)
        some = ~np.isnan(after).all(axis=1)
        differences = np.nanmean(after[some], axis=1) - before[some].mean(axis=1)
        results = functools.partial(lambda *each: [trained("a", *each)], before, after)
        wrong += asked(QUESTION, results, [differences], number)[0] == "SUPPORTED"
    figure(f"supported with wrong answers lost: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + (room(LEVEL, trials) if trials < 1000 else 0.0)


def without_wrong_ones(rng, rewards, share):
    """The rewards [n, k] with NaN for `share` of them, wrong ones."""
    wrong = np.flatnonzero(rewards == 0.0)
    lost = rng.choice(wrong, min(len(wrong), int(share * rewards.size)), replace=False)
    left = rewards.copy()
    left.flat[lost] = np.nan
    return left


# --- claims at their margins -------------------------------------------------------------------------------------------------

AT_MARGIN = {"better": 1.0, "no_worse": -1.0, "equal": 1.0, "worse": -1.0}
"""On which side of 0 the truth lies at which a claim just fails to hold."""


def scores_at(rng, kind, tasks, truth):
    """An arm and its baseline, [tasks] each, whose true difference is `truth`."""
    if kind == "binary":
        differs = rng.random(tasks)
        share = (0.1 + abs(truth)) if truth > 0 else 0.1
        arm = (differs < share).astype(float)
        baseline = ((differs >= share) & (differs < share + (0.1 if truth > 0 else 0.1 - truth))).astype(
            float
        )
        return arm, baseline
    if kind == "rare":  # hardly a task differs, each by all that there is
        differs = (rng.random(tasks) < abs(truth)).astype(float)
        return (differs, np.zeros(tasks)) if truth > 0 else (np.zeros(tasks), differs)
    hardness = rng.uniform(0.3, 0.7, tasks)
    arm, baseline = (rng.binomial(4, hardness + side * truth / 2) / 4 for side in (1, -1))
    return arm, baseline


@pytest.mark.parametrize("trials", share(2000, fast=100))
@pytest.mark.parametrize("tasks", [100, 1000])
@pytest.mark.parametrize("kind", ["binary", "partial", "rare"])
@pytest.mark.parametrize("claim", list(AT_MARGIN))
def test_a_claim_whose_margin_is_the_truth_is_supported_in_at_most_5_of_100(claim, kind, tasks, trials):
    rng = np.random.default_rng(tasks)
    margin, wrong = 0.05, 0
    for seed in range(trials):
        truth = AT_MARGIN[claim] * margin
        arm, baseline = scores_at(rng, kind, tasks, truth)
        beyond = (arm - baseline - truth) * (1.0 if claim in ("better", "no_worse") else -1.0)
        if kind == "partial" and not may_win(beyond) and seed % 25:
            continue  # nothing is shown by a difference that is so near to the margin
        (found,) = paired_differences(
            [Pair(arm=arm, baseline=baseline, largest=1.0)],
            binary=kind != "partial",
            draws=1000,
            seed=seed,
        )
        wrong += claim_p(claim, margin, found) <= LEVEL
    figure(f"supported at its margin: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + (room(LEVEL, trials) if trials < 1000 else 0.0)


@pytest.mark.parametrize("trials", share(2000, fast=100))
@pytest.mark.parametrize("tasks", [15, 30, 100, 300])
@pytest.mark.parametrize("margin", [0.02, 0.05, 0.2])
def test_few_tasks_that_differ_do_not_show_that_an_arm_is_no_worse(tasks, margin, trials):
    """Partial credit where hardly a task differs: flipping signs alone is wrong in up to three of four experiments."""
    rng = np.random.default_rng(tasks)
    wrong = 0
    for seed in range(trials):
        arm, baseline = scores_at(rng, "rare", tasks, -margin)
        found = wild_bootstrap(arm - baseline, draws=1000, seed=seed, largest=1.0)
        wrong += claim_p("no_worse", margin, found) <= LEVEL
    figure(f"no worse although it is: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + (room(LEVEL, trials) if trials < 1000 else 0.0)


@pytest.mark.parametrize("trials", share(2000, fast=40))
@pytest.mark.parametrize("runs", [1, 3, 5])
@pytest.mark.parametrize("tasks", [100, 1000])
@pytest.mark.parametrize("by_seed", [0.0, 0.04])
@pytest.mark.parametrize("samples", [1, 4])
def test_equal_recipes_are_supported_as_recipes_in_at_most_5_of_100(runs, tasks, by_seed, samples, trials):
    """With few runs a claim is about checkpoints, however often these differ."""
    rng = np.random.default_rng(runs * tasks)
    wrong = 0
    question = attrs.evolve(QUESTION, baseline="base")
    for number in range(trials):
        hardness = rng.uniform(0.3, 0.7, tasks)
        chances = hardness + by_seed * rng.normal(size=(2, runs, 1))
        rewards = (rng.random((2, runs, tasks, samples)) < chances[..., None]).astype(float)
        results = functools.partial(of_recipes, rewards)
        base, arm = rewards.mean(axis=(1, 3))
        verdict, subject = asked(question, results, [arm - base], number)
        wrong += verdict == "SUPPORTED" and subject == "recipe"
    figure(f"supported as recipes: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + (room(LEVEL, trials) if trials < 1000 else 0.0)


def of_recipes(rewards):
    """The runs of a baseline and an arm, from rewards [2, runs, n, k]."""
    return [
        trained(name, None, row, repeat)
        for name, rows in zip(("base", "arm"), rewards, strict=True)
        for repeat, row in enumerate(rows)
    ]


@pytest.mark.parametrize("trials", share(2000, fast=30))
@pytest.mark.parametrize("claim", list(AT_MARGIN))
@pytest.mark.parametrize("by_seed", [0.0, 0.04])
@pytest.mark.parametrize("samples", [1, 4])
def test_a_claim_about_recipes_whose_margin_is_the_truth_is_supported_in_at_most_5_of_100(
    claim, by_seed, samples, trials
):
    rng = np.random.default_rng(samples)
    runs, tasks, margin, wrong = 4, 100, 0.05, 0
    truth = AT_MARGIN[claim] * margin
    question = attrs.evolve(QUESTION, baseline="base", claim=claim, margin=margin)
    for number in range(trials):
        chances = rng.uniform(0.3, 0.7, tasks) + by_seed * rng.normal(size=(2, runs, 1))
        chances[1] += truth
        rewards = (rng.random((2, runs, tasks, samples)) < chances[..., None]).astype(float)
        results = functools.partial(of_recipes, rewards)
        base, arm = rewards.mean(axis=(1, 3))
        beyond = (arm - base - truth) * (1.0 if claim in ("better", "no_worse") else -1.0)
        verdict, subject = asked(question, results, [beyond], number)
        wrong += verdict == "SUPPORTED" and subject == "recipe"
    figure(f"supported of recipes at its margin: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + (room(LEVEL, trials) if trials < 1000 else 0.0)


# --- recipes with few runs, by the deviation of others -----------------------------------------------------------------------


def runs_of(rng, count, hardness, by_seed, samples):
    """Scores of the runs of a recipe, [count, n], whose means differ by `by_seed`."""
    chances = np.clip(hardness + by_seed * rng.normal(size=(count, 1)), 0, 1)
    return rng.binomial(samples, chances) / samples


@pytest.mark.parametrize("trials", share(2000, fast=60))
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("tasks", [100, 1000])
@pytest.mark.parametrize("by_seed", [0.0, 0.04])
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("recipes", [(4,), (2, 2, 2, 2, 2, 2)], ids=["one_recipe", "six_recipes"])
def test_equal_recipes_are_told_apart_by_a_known_deviation_in_at_most_5_of_100(
    runs, tasks, by_seed, samples, recipes, trials
):
    """The recipes on record, and these two, differ in how far their runs fall apart, by a factor of 1.6 either way."""
    rng = np.random.default_rng(runs * tasks + samples)
    wrong = 0

    def recipe(count, hardness):
        return runs_of(rng, count, hardness, by_seed * np.exp(0.5 * rng.normal()), samples)

    for seed in range(trials):
        hardness = rng.uniform(0.3, 0.7, tasks)
        known = run_deviation(
            "val.mean_reward",
            [
                recipe_runs("before", str(i), list(map(str, range(count))), recipe(count, hardness))
                for i, count in enumerate(recipes)
            ],
        )
        arm, base = recipe(runs, hardness), recipe(runs, hardness)
        if not may_win(arm.mean(axis=0) - base.mean(axis=0)) and seed % 25:
            continue
        (checkpoint,) = paired_differences(
            [Pair(arm=arm.mean(axis=0), baseline=base.mean(axis=0), largest=1.0)],
            binary=runs == samples == 1,
            draws=400,
            seed=seed,
        )
        own = [recipe_runs(None, "", list(map(str, range(runs))), each) for each in (arm, base) if runs > 1]
        errors = errors_with(with_own_runs(known, own), arm, base)
        found = recipe_claim(checkpoint, arm, base, errors=errors, largest=1.0)
        wrong += found.effect > 0 and found.p_value <= LEVEL
    figure(f"supported by a known deviation: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + (room(LEVEL, trials) if trials < 1000 else 0.0)


@pytest.mark.parametrize("trials", share(2000, fast=80))
@pytest.mark.parametrize(("prompts", "copies"), [(5, 20), (12, 10)])
def test_equal_arms_on_copies_of_few_tasks_are_supported_in_at_most_5_of_100(trials, prompts, copies):
    """Prompts under many ids each, which a model answers alike."""
    rng = np.random.default_rng(prompts)
    clusters = np.repeat(np.arange(prompts), copies)
    firsts = {f"t{i:04d}": f"t{i - i % copies:04d}" for i in range(prompts * copies) if i % copies}
    wrong = 0
    for _ in range(trials):
        before, after = (outcomes(rng, 0.5, prompts)[clusters] for _ in range(2))
        run = trained("a", before, after, clusters=clusters)
        scorings = tuple(attrs.evolve(one, copies=firsts) for one in run.evaluations)
        conclusion = conclude(QUESTION, [attrs.evolve(run, evaluations=scorings)])
        assert (conclusion.verdict == "INVALID") == (prompts < 10)
        wrong += conclusion.verdict == "SUPPORTED"
    figure(f"supported on copies: {100 * wrong / trials:.2f} %")
    assert wrong / trials <= LEVEL + (room(LEVEL, trials) if trials < 1000 else 0.0)
