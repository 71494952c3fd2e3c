"""Goal files: every problem at once, with its place."""

import pytest

from evsys.errors import ConfigError
from evsys_autoresearch.goal import load_goal


def problems(lab):
    with pytest.raises(ConfigError) as caught:
        load_goal(lab.root / "goal.yaml")
    return {each.path: (each.line, each.message, each.hint) for each in caught.value.problems}


def test_a_right_goal_has_its_axes_and_its_sealed_entry(lab):
    goal = load_goal(lab.root / "goal.yaml")
    assert [axis.path.rpartition(".")[2] for axis in goal.levers.space] == ["learning_rate", "lora_rank"]
    assert (goal.sealed.split, goal.sealed.max_tokens, goal.success.benchmark) == ("test", 9, "val")


def test_unknown_keys_and_wrong_values_are_reported_together(lab):
    lab.goal(budget="{experiments: 3, second: 3}", goa="typo")
    found = problems(lab)
    assert found["$.goa"][2] == "did you mean 'goal'?"
    assert found["$.budget.second"][0] > 1


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"start": "nothing.yaml"}, "$.start", "no such file"),
        ({"objective": "{metric: val.pass_rate}"}, "$.objective.metric", "is not the success metric"),
        ({"levers": "[metadata.hypothesis]"}, "$.levers[0]", "is not inside 'run'"),
        ({"levers": "[{path: run.seed, low: 2, high: 1}]"}, "$.levers[0]", "'low' below 'high'"),
        ({"levers": '["run..data"]'}, "$.levers[0]", "is not a path"),
        ({"sealed": "{path: val.jsonl}"}, "$.sealed.path", "inside the project"),
        ({"sealed": "{path: ../nowhere}"}, "$.sealed.path", "no such file"),
        ({"researcher": "{kind: rendom}"}, "$.researcher.kind", "rendom"),
        ({"researcher": "{kind: greedy, params: {spred: 1}}"}, "$.researcher.params.spred", "unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(lab, changes, path, message):
    lab.goal(**changes)
    line, said, _ = problems(lab)[path]
    assert message in said
    assert line is not None


def test_a_lever_without_a_range_is_searched_a_factor_of_ten_around_the_start(lab):
    lab.goal(levers="[run.algorithm.params]")
    axes = {axis.path.rpartition(".")[2]: axis for axis in load_goal(lab.root / "goal.yaml").levers.space}
    assert (axes["learning_rate"].low, axes["learning_rate"].high) == (1e-4, 1e-2)
    assert (axes["steps"].low, axes["steps"].high, axes["steps"].type) == (1, 60, "int")
