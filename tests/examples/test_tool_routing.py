"""Tool routing: rehearsed on the mock backend by default, and learned by SmolLM2 in the slow tests."""

import pytest


@pytest.fixture(scope="module")
def routing(example):
    return example("tool_routing")


def test_its_script_writes_the_data_that_is_there(routing):
    assert routing.scripted() == routing.data()


def test_no_held_out_request_has_a_wording_of_the_training_data(routing):
    train, held_out = routing.train(), routing.tasks()
    assert (len(train), len(held_out)) == (256, 100)
    assert {row["wording"] for row in train} & {row["wording"] for row in held_out} == set()
    assert {row["query"] for row in train} & {row["query"] for row in held_out} == set()
    assert len({row["tool"] for row in train}) == 10
    assert {row["tool"] for row in train} == {row["tool"] for row in held_out}


def test_a_rehearsal_on_the_mock_backend_runs_the_same_file(routing):
    result = routing.run("run.backend.kind=mock", "run.algorithm.params.steps=4")
    assert (result.status, result.exit_code) == ("completed", 0)
    assert not [warning for warning in result.arms[0].warnings if "wording" in warning]
    before, after = result.arms[0].evaluations
    assert (before.tasks, after.tasks, after.no_score) == (100, 100, 0)
    assert len(after.breakdown["tool"]) == 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_smollm2_learns_to_route_requests_in_new_wordings(routing, score, seed):
    result = routing.run(f"run.seed={seed}")
    assert score(result, 0) < 0.05
    assert score(result, -1) >= 0.8
    assert result.conclusion.verdict == "SUPPORTED"
