"""An algorithm of a project: the shipped SFT with another loss on its batches."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from evsys.types import Datum
from evsys_runtime.losses.compute import compute_loss


@pytest.fixture(scope="module")
def project(example):
    return example("custom_algorithm")


@pytest.fixture(scope="module")
def result(project):
    short = ("metadata.benchmark.limit=12", "run.algorithm.params.steps=6")
    return project.run("run.backend.kind=mock", *short)


def test_its_script_writes_the_data_that_is_there(project):
    assert project.scripted() == project.data()


def test_it_runs_beside_the_algorithm_that_it_was_made_from(result):
    assert (result.status, result.exit_code) == ("completed", 0)
    assert [arm.arm for arm in result.arms] == ["sft", "focal"]
    (comparison,) = result.conclusion.comparisons
    assert (result.conclusion.baseline, comparison.arm) == ("sft", "focal")


def test_its_loss_is_what_is_trained_with(result, read):
    sft, focal = (read(Path(arm.run_dir) / "training/metrics.jsonl") for arm in result.arms)
    # Both start from the same weights and see the same rows, so only the loss can differ.
    assert sft[0]["values"]["nll"] == pytest.approx(focal[0]["values"]["nll"], rel=1e-5)
    assert sft[0]["values"]["loss"] == pytest.approx(sft[0]["values"]["nll"], rel=1e-5)
    assert focal[0]["values"]["loss"] < 0.99 * focal[0]["values"]["nll"]
    assert focal[-1]["values"]["loss"] < focal[0]["values"]["loss"]
    assert focal[-1]["values"]["nll"] != sft[-1]["values"]["nll"]


def test_its_loss_is_differentiated_from_plain_numpy(project):
    focal_loss = runpy.run_path(str(project.folder / "src/algorithms.py"))["focal_loss"]
    weights, logprobs = np.array([0.0, 0.5, 0.5]), np.log([0.2, 0.9, 0.4])
    datum = Datum(tokens=np.arange(3), loss_inputs={"target_tokens": np.arange(3), "weights": weights})
    made = compute_loss(focal_loss, [datum], [logprobs], {"gamma": 2.0})
    p = np.exp(logprobs)
    assert made.loss == pytest.approx(np.sum(weights * (1 - p) ** 2 * -logprobs))
    expected = weights * (2 * (1 - p) * p * logprobs - (1 - p) ** 2)
    np.testing.assert_allclose(made.grads[0], expected, rtol=1e-9)
