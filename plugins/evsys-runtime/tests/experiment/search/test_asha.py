"""What early stopping saves, and what it loses, against the whole grid on the mock backend."""

from __future__ import annotations

import os
from string import ascii_lowercase

import pytest
from small_project import METADATA, Project

BASE = """
base_run:
  data: {source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: %d, batch_size: 8}}
  backend: {kind: mock}
matrix:
  axes:
    algorithm.params.learning_rate: %s
"""
MORE_AXES = """\
    algorithm.params.lora_rank: [4, 8, 16]
    algorithm.params.batch_size: [4, 8, 16]
"""
SEARCH = "\nsearch: {kind: asha, params: {sampler: grid, min_steps: %d, seed: %d}}\nconfirm: null"
METRIC = METADATA.replace("max_tokens: 4", "max_tokens: 2")


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


def score(arm):
    return arm.evaluations[-1].metrics["mean_reward"].value


def compared(root, *, steps, min_steps, seed, rates, axes=""):
    """The share of the grid's steps that `asha` takes, whether it trains a best arm to its end, and the share of arms that are best."""
    project, letters = Project(root), ascii_lowercase[:16]
    project.write("train.jsonl", [{"prompt": f"say {c}", "completion": c} for c in letters])
    project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate(letters)])
    text, more = BASE % (steps, rates) + axes, f"base_seed: {seed}\nmax_concurrent_arms: 1\n"
    grid = project.experiment(text, metadata=METRIC, extra=more).run()
    metadata = f"{METRIC}    run_every: {min_steps}\n"
    search = project.experiment(SEARCH % (min_steps, seed) + text, metadata=metadata, extra=more).run()
    assert len(search.arms) == len(grid.arms)
    taken, whole = (sum(arm.run.steps for arm in result.arms) for result in (search, grid))
    best = max(map(score, grid.arms))
    kept = any(score(arm) == best for arm in search.arms if arm.run.steps == steps)
    return taken / whole, kept, sum(score(arm) == best for arm in grid.arms) / len(grid.arms)


def test_it_takes_less_than_the_grid_and_keeps_the_best_arm(tmp_path):
    rates = "[0.0001, 0.001, 0.003, 0.02]"
    share, kept, _ = compared(tmp_path, steps=18, min_steps=6, seed=1, rates=rates)
    assert share < 0.9
    assert kept


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_of_27_arms_it_takes_two_fifths_and_keeps_the_best_one_in_19_of_20_seeds(tmp_path_factory):
    found = [
        compared(
            tmp_path_factory.mktemp(f"seed-{seed}"),
            steps=24,
            min_steps=2,
            seed=seed,
            rates="[0.003, 0.01, 0.03]",
            axes=MORE_AXES,
        )
        for seed in range(20)
    ]
    assert sum(share <= 0.4 and kept for share, kept, _ in found) >= 19, found
    assert max(best for *_, best in found) < 0.5  # else to keep one is not a feat
