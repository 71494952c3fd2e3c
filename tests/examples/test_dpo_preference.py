"""Preference pairs: rehearsed on the mock backend, and learned by evsys/tiny in the slow tests."""

import pytest


@pytest.fixture(scope="module")
def preferred(example):
    return example("dpo_preference")


def margins(preferred, result, read):
    lines = read(preferred.folder / result.arms[0].run_dir / "training/metrics.jsonl")
    return [line["values"]["margin"] for line in lines]


def test_its_script_writes_the_data_that_is_there(preferred):
    assert preferred.scripted() == preferred.data()


def test_no_held_out_word_is_trained_and_capitals_are_always_preferred(preferred):
    train, held_out = preferred.train(), preferred.tasks()
    assert (len(train), len(held_out)) == (300, 100)
    assert {row["prompt"] for row in train} & {row["prompt"] for row in held_out} == set()
    assert all(row["chosen"].isupper() and row["rejected"] != row["chosen"] for row in train)


def test_a_rehearsal_on_the_mock_backend_moves_the_margin(preferred, read):
    result = preferred.run("run.backend.kind=mock", "run.algorithm.params.steps=10")
    assert (result.status, result.exit_code) == ("completed", 0)
    found = margins(preferred, result, read)
    assert found[0] == 0.0
    assert found[-1] > found[0]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_evsys_tiny_learns_what_is_preferred(preferred, score, read, seed):
    result = preferred.run(f"run.seed={seed}")
    found = margins(preferred, result, read)
    assert abs(found[0]) < 1e-6
    assert found[-1] > 1.0
    assert score(result, 0) <= 0.1
    assert score(result, -1) >= 0.9
    assert result.conclusion.verdict == "SUPPORTED"
