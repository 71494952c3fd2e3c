"""The examples of reinforcement learning: rehearsed on the mock backend, and learned by evsys/tiny in the slow tests."""

import runpy

import pytest

NAMES = ("rl_word_length", "rl_lookup")
REHEARSAL = ("run.backend.kind=mock", "run.algorithm.params.steps=2", "run.algorithm.params.group_size=4")


@pytest.fixture(scope="module", params=NAMES)
def learnt(request, example):
    return example(request.param)


def test_its_script_writes_the_data_that_is_there(learnt):
    assert learnt.scripted() == learnt.data()


def test_no_held_out_word_is_trained(learnt):
    train, held_out = learnt.train(), learnt.tasks()
    assert (len(train), len(held_out)) == (400, 100)
    assert {row["word"] for row in train} & {row["word"] for row in held_out} == set()


def test_a_rehearsal_on_the_mock_backend_runs_the_same_file(learnt, read):
    result = learnt.run(*REHEARSAL)
    assert (result.status, result.exit_code) == ("completed", 0)
    before, after = result.arms[0].evaluations
    assert (before.tasks, after.tasks, after.no_score) == (100, 100, 0)
    lines = read(learnt.folder / result.arms[0].run_dir / "training/rollouts.jsonl")
    assert len(lines) == 2 * 8 * 4
    turns = {len(line["rollout"]["turns"]) for line in lines}
    assert turns == ({2} if learnt.folder.name == "rl_lookup" else {1})


def test_a_rehearsal_that_has_nothing_to_learn_says_so_and_stops(example):
    result = example("rl_word_length").run(
        "run.backend.kind=mock", "run.algorithm.params.max_flat_steps=2", "run.algorithm.params.group_size=4"
    )
    run = result.arms[0].run
    assert run.steps == 2
    assert "no group had rewards that differ (their mean is 0)" in run.stop_reason


def test_the_topics_verifier_pays_for_the_right_topic_alone(example):
    folder = example("rl_topic").folder
    only_topic = runpy.run_path(str(folder / "src/verifiers.py"))["only_topic"]
    assert only_topic("Music.", "music", {}) == 1.0
    assert only_topic("It is about the weather", "weather", {}) == 1.0
    assert only_topic("music, weather or travel", "music", {}) == 0.0
    assert only_topic("musical", "music", {}) == 0.0


def test_the_topics_are_held_out_by_their_wording(example):
    topics = example("rl_topic")
    assert topics.scripted() == topics.data()
    made = runpy.run_path(str(topics.folder / "make_data.py"))
    for topic, templates in made["TRAINED"].items():
        assert set(templates) & set(made["HELD_OUT"][topic]) == set()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_smollm2_learns_to_name_a_topic_from_rewards_alone(example, score, seed):
    result = example("rl_topic").run(f"run.seed={seed}")
    before = result.arms[0].evaluations[0].metrics["mean_reward"]
    assert before.value <= 0.4
    assert score(result, -1) > before.high
    assert score(result, -1) >= 0.85
    assert result.conclusion.verdict == "SUPPORTED"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_evsys_tiny_learns_from_rewards_alone(learnt, score, seed):
    result = learnt.run(f"run.seed={seed}")
    before = result.arms[0].evaluations[0].metrics["mean_reward"]
    assert before.value <= 0.1
    assert score(result, -1) > before.high
    assert score(result, -1) >= 0.9
    assert result.conclusion.verdict == "SUPPORTED"
