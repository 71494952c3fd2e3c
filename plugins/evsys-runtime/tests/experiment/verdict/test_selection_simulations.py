"""A run that learns nothing and is scored 20 times: the best of its checkpoints must not win more often than chance allows."""

import math
import sys
from statistics import NormalDist
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from evsys.types import ArmResult, EvaluationResult, MetricValue, RunResult, SelectedCheckpoint
from evsys_record.proofs import proof_name
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.evaluation.proof import selecting_tasks
from evsys_runtime.experiment.prior.level_parts import repeated_share
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.question import Question
from evsys_stats.alpha_spending import level_of_look, parts_of_selection

pytestmark = pytest.mark.slow

LOOKS = 20
TASKS = [f"t{i:03d}" for i in range(60)]
QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
)


def scoring(name, step, rewards):
    """`rewards` maps a task to its samples."""
    value = float(np.mean([np.mean(samples) for samples in rewards.values()]))
    return EvaluationResult(
        benchmark=name,
        split="val",
        step=step,
        status="completed",
        metrics={"mean_reward": MetricValue(value=value)},
        num_samples=len(next(iter(rewards.values()))),
        task_rewards=rewards,
    )


def drawn(random, difficulty, samples, tasks=TASKS):
    solved = random.random((len(TASKS), samples)) < difficulty[:, None]
    return {task: tuple(map(float, solved[TASKS.index(task)])) for task in tasks}


def run(evaluations, step):
    selected = SelectedCheckpoint(
        step=step, checkpoint=str(step), by="val.mean_reward", score=0.0, last_step=LOOKS, looks=LOOKS
    )
    return ArmResult(
        run_id="a-s0",
        arm="a",
        repeat=0,
        seed=0,
        status="completed",
        identity="a",
        run=RunResult(status="completed", steps=LOOKS, selected_checkpoint=selected),
        evaluations=tuple(evaluations),
    )


def false_wins(proof, *, samples, trials=2000):
    """The share of runs whose selected checkpoint wins against the untrained weights, none of which is any better."""
    random = np.random.default_rng(7)
    clusterless = SimpleNamespace(tasks=[SimpleNamespace(task_id=task) for task in TASKS], clusters={})
    seen = selecting_tasks(clusterless) if proof == "held_out_tasks" else frozenset(TASKS)
    proving = [task for task in TASKS if proof != "held_out_tasks" or task not in seen]
    wins = 0
    for _ in range(trials):
        difficulty = random.beta(1.0, 1.5, len(TASKS))
        looks = {step: drawn(random, difficulty, samples) for step in range(LOOKS + 1)}
        means = {step: np.mean([np.mean(looks[step][task]) for task in seen]) for step in range(1, LOOKS + 1)}
        best = max(means, key=lambda step: (means[step], step))
        evaluations = [scoring("val", step, looks[step]) for step in (0, best)]
        if proof == "held_out_tasks":  # at temperature 0 the same answers come again
            again = [{task: looks[step][task] for task in proving} for step in (0, best)]
            evaluations += [
                scoring(proof_name("val"), step, each) for step, each in zip((0, best), again, strict=True)
            ]
        elif proof == "fresh_samples":
            evaluations += [
                scoring(proof_name("val"), step, drawn(random, difficulty, samples)) for step in (0, best)
            ]
        wins += conclude(QUESTION, [run(evaluations, best)]).comparisons[0].outcome == "win"
    sys.stdout.write(f"a selected checkpoint wins: {100 * wins / trials:.2f} %\n")
    return wins / trials


@pytest.mark.parametrize(
    ("proof", "samples"), [("held_out_tasks", 1), ("fresh_samples", 1), ("fresh_samples", 4)]
)
def test_a_selected_checkpoint_of_a_run_that_learns_nothing_seldom_wins(proof, samples):
    assert false_wins(proof, samples=samples) <= 0.05


def test_without_a_proof_the_best_of_20_looks_would_win_too_often():
    assert false_wins(None, samples=1) > 0.12


def wins_where_answers_repeat(repeated, *, divided, trials=1500, tasks=100):
    """The share of selected checkpoints that win, if a part of what sets checkpoints apart on these tasks comes again in fresh samples: they are no better on others."""
    random = np.random.default_rng(11)
    names = [f"t{i:03d}" for i in range(tasks)]
    wins, level = 0, level_of_look(1, ALPHA)
    for _ in range(trials):
        own = math.sqrt(repeated) * random.normal(size=(LOOKS + 1, tasks))

        def sampled(step, own=own):
            values = own[step] + math.sqrt(1 - repeated) * random.normal(size=tasks)
            return dict(zip(names, values, strict=True))

        looks = {step: sampled(step) for step in range(LOOKS + 1)}
        best = max(range(1, LOOKS + 1), key=lambda step: sum(looks[step].values()))
        again = {step: sampled(step) for step in (0, best)}
        trained = {step: one for step, one in looks.items() if step}
        share = repeated_share(trained, best, again[best])
        parts = parts_of_selection(LOOKS, share, level) if divided else 1
        lead = np.array([again[best][name] - again[0][name] for name in names])
        least = 0.95 * NormalDist().inv_cdf(1 - level / parts / 2)  # no test finds less significant
        if lead.mean() < least * lead.std(ddof=1) / math.sqrt(tasks):
            continue
        question = attrs.evolve(QUESTION, level=level / parts)
        evaluations = [
            scoring(name, step, {task: (value,) for task, value in each.items()})
            for name, scored in (("val", looks), (proof_name("val"), again))
            for step, each in scored.items()
            if step in (0, best)
        ]
        wins += conclude(question, [run(evaluations, best)]).comparisons[0].outcome == "win"
    sys.stdout.write(
        f"{repeated:.0%} of it repeated, level divided: {divided}: {100 * wins / trials:.1f} % win\n"
    )
    return wins / trials


@pytest.mark.parametrize("repeated", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_fresh_samples_that_repeat_what_selected_support_few_false_claims(repeated):
    assert wins_where_answers_repeat(repeated, divided=True) <= 0.05


def test_without_a_division_of_the_level_repeated_answers_would_win_too_often():
    assert wins_where_answers_repeat(0.8, divided=False) > 0.12
