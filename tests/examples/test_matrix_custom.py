"""A matrix over the learning rate and a parameter of the project's own transform, with its own verifier and metric."""

import runpy
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def matrix(example):
    return example("matrix_custom")


@pytest.fixture(scope="module")
def result(matrix):
    return matrix.run("run.backend.kind=mock", "run.algorithm.params.steps=2", "metadata.benchmark.limit=12")


def test_its_script_writes_the_data_that_is_there(matrix):
    assert matrix.scripted() == matrix.data()


def test_every_combination_is_an_arm_and_is_compared(result):
    assert (result.status, result.exit_code) == ("completed", 0)
    assert [arm.arm for arm in result.arms] == [
        f"lr-{rate}-letters-{letters}" for rate in ("0.001", "0.005") for letters in (4, 7)
    ]
    assert [comparison.arm for comparison in result.conclusion.comparisons] == [
        arm.arm for arm in result.arms
    ]
    assert result.conclusion.correction == "bonferroni"


def test_the_axis_reaches_the_projects_own_transform(matrix, result, read):
    all_rows = matrix.train()
    for arm in result.arms:
        rows = read(Path(arm.run_dir) / "data/training_data.jsonl")
        longest = int(arm.arm[-1])
        assert len(rows) == sum(len(row["answer"]) <= longest for row in all_rows)
        run = (Path(arm.run_dir) / "run.json").read_text(encoding="utf-8")
        assert ("more than 4 letters" in run) == (longest == 4)


def test_the_projects_own_metric_and_verifier_score_the_arms(result):
    assert result.conclusion.metric == "held_out.best@2"
    evaluation = result.arms[0].evaluations[-1]
    rewards = evaluation.task_rewards.values()
    assert {len(samples) for samples in rewards} == {2}
    assert evaluation.metrics["best@2"].value == pytest.approx(sum(map(max, rewards)) / 12)
    assert evaluation.split == "val"


def test_the_verifier_gives_credit_for_each_letter_in_its_place(matrix):
    verifier = runpy.run_path(str(matrix.folder / "src/verifiers.py"))["letters_in_place"]
    assert verifier(" dbca\n", "dbca", {}) == 1.0
    assert verifier("dbcx", "dbca", {}) == 0.75
    assert verifier("dbcadbca", "dbca", {}) == 0.5
    assert verifier("", "dbca", {}) == 0.0
