"""The examples of arms in stages: rehearsed on the mock backend, and learnt by evsys/tiny in the slow tests."""

import pytest


@pytest.fixture(scope="module")
def continual(example):
    return example("continual_replay")


@pytest.fixture(scope="module")
def staged(example):
    return example("stages_sft_rl")


@pytest.mark.parametrize("name", ["continual_replay", "stages_sft_rl"])
def test_its_script_writes_the_data_that_is_there(example, name):
    copy = example(name)
    assert copy.scripted() == copy.data()


@pytest.mark.parametrize("name", ["continual_replay", "stages_sft_rl"])
def test_no_word_is_trained_and_scored(example, name, read):
    files = (example(name).folder / "data").rglob("*.jsonl")
    parts = [[row["word"] for row in read(path)] for path in files]
    assert len({word for part in parts for word in part}) == sum(map(len, parts))


def test_a_rehearsal_of_continual_learning_has_the_matrix_of_both_arms(continual):
    result = continual.run("matrix.base_run.backend.kind=mock", "matrix.base_run.algorithm.params.steps=2")

    assert (result.status, result.exit_code) == ("completed", 0)
    assert [arm.run_id for arm in result.arms] == [
        "replay-0-s0.1-zig",
        "replay-0-s0.2-zag",
        "replay-0.5-s0.1-zig",
        "replay-0.5-s0.2-zag",
    ]
    for found in result.conclusion.forgetting:
        assert found.stages == ("start", "1-zig", "2-zag")
        assert all(value is not None for row in found.values for value in row)


def test_a_rehearsal_of_stages_trains_by_both_recipes(staged, read):
    result = staged.run("run.backend.kind=mock", "stages[1].algorithm.params.steps=2")

    assert (result.status, result.exit_code) == ("completed", 0)
    first, second = result.arms
    assert [arm.run.steps for arm in result.arms] == [12, 2]
    assert (staged.folder / second.run_dir / "training/rollouts.jsonl").exists()
    assert not (staged.folder / first.run_dir / "training/rollouts.jsonl").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_evsys_tiny_forgets_without_replay_and_keeps_most_with_it(continual, seed):
    result = continual.run(f"base_seed={seed}")

    without, with_replay = result.conclusion.forgetting
    for found in (without, with_replay):
        assert found.values[0][1] >= 0.9
        assert found.values[1][2] >= 0.8
    assert without.retention[0][2] <= 0.2
    assert with_replay.retention[0][2] >= 0.5
    assert result.conclusion.verdict == "SUPPORTED"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_evsys_tiny_goes_on_from_examples_with_rewards(staged, seed, score):
    result = staged.run(f"base_seed={seed}")

    shown, practised = (arm.evaluations[-1].metrics["mean_reward"] for arm in result.arms)
    assert score(result, 0) <= 0.1
    assert 0.05 <= shown.value <= 0.6
    assert practised.value >= 0.9
    assert practised.low > shown.high
    assert result.conclusion.verdict == "SUPPORTED"
