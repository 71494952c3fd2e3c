"""`search` beside a matrix: what it may choose from, and what is refused before anything is spent."""

from __future__ import annotations

import json

import pytest

from evsys.errors import ConfigError

HEAD = """\
version: 1
name: x
metadata: {success_metric: val.mean_reward, benchmark: {name: val, path: data/val.jsonl}}
base_run:
  data: {path: data/train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft}
  backend: {kind: mock}
"""
RATE = "    algorithm.params.learning_rate: {low: 1e-5, high: 1e-2, log: true}\n"
RANK = "    algorithm.params.lora_rank: {low: 2, high: 16, type: int}\n"


class Search:
    """Proposes nothing, and tells what is asked of it."""

    def __init__(self, **fields):
        self.fields = fields

    def ask(self, history, space):
        return []

    def size(self, space):
        return 7

    def validate_space(self, space):
        return [f"too many axes: {len(space)}"] if len(space) > 4 else []


class Stopping(Search):
    def keep(self, history, n, step, score):
        return True


@pytest.fixture(autouse=True)
def searches(registry):
    registry.register("search", "some", Search)
    registry.register("search", "stopping", Stopping)


def file(axes=RATE, *, search="search: {kind: some}\n", head=HEAD, more=""):
    return f"{head}{search}{more}matrix:\n  axes:\n{axes}"


def test_a_search_has_no_arms_of_its_own_and_knows_its_space(load):
    plan = load(file(RATE + RANK + "    seed: [1, 2]\n"))

    assert plan.arms == ()
    rate, rank, seed = plan.search.space.axes
    assert (rate.path, rate.low, rate.high, rate.log, rate.type) == (
        "algorithm.params.learning_rate",
        1e-5,
        1e-2,
        True,
        "float",
    )
    assert (rank.low, rank.high, rank.type) == (2, 16, "int")
    assert seed.choices == (1, 2)
    assert (plan.search.size, plan.search.stops) == (7, False)
    assert (plan.experiment.confirm.seeds, plan.success.benchmark) == (None, "val")


def test_confirm_can_be_set_and_left_out(load):
    assert load(file(more="confirm: {seeds: 3}\n")).experiment.confirm.seeds == 3
    assert load(file(more="confirm: null\n")).experiment.confirm is None


def test_values_make_arms_named_by_them(load):
    search = load(file(RATE + RANK)).search
    arm = search.tree({"algorithm.params.learning_rate": 0.0003, "algorithm.params.lora_rank": 8})

    assert arm.name == "learning_rate-0.0003-lora_rank-8"
    (made,) = search.arms(arm, "other-name")
    assert (made.name, made.run.name, made.repeat) == ("other-name", "other-name", 0)
    assert made.run.algorithm.params == {"learning_rate": 0.0003, "lora_rank": 8}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "it has no value on the axis 'algorithm.params.learning_rate'"),
        ({"algorithm.params.learning_rate": 0.5}, "0.5 isn't on the axis 'algorithm.params.learning_rate'"),
        ({"algorithm.params.learning_rate": True}, "True isn't on the axis"),
        ({"algorithm.params.learning_rate": 1e-3, "seed": 1}, "there is no axis 'seed'"),
    ],
)
def test_values_beside_the_space_are_refused(load, values, message):
    with pytest.raises(ConfigError, match="axis") as refused:
        load(file()).search.tree(values)
    assert message in str(refused.value)


def test_each_value_of_each_axis_is_looked_at_once(load):
    choices = "    algorithm.params.batch_size: [1, 2, 3, 4]\n    seed: [1, 2, 3]\n"
    assert len(load(file(RATE + RANK + choices)).search.probes) == 3 + 2 + 3 + 2


def test_a_space_of_any_size_is_checked_at_once(load):
    many = "    algorithm.params.notes: [a, b]\n"
    seeds = f"    seed: {json.dumps(list(range(500)))}\n    algorithm.params.batch_size: {json.dumps(list(range(1, 500)))}\n"
    assert len(load(file(RATE + seeds + many)).search.probes) < 1_100


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("    algorithm.params.learning_rate: {low: -1, high: 1}\n", "exp.yaml:12:38: $.matrix.axes['algorithm.params.learning_rate'].low: 'learning_rate' must be > 0"),
        ("    algorithm.params.lora_rank: {low: 2, high: 16}\n", "$.matrix.axes['algorithm.params.lora_rank']: expected"),
        ("    algorithm.params.batch_size: [4, 0]\n", "$.matrix.axes['algorithm.params.batch_size'][1]: 'batch_size' must be >= 1"),
        ("    algorithm.params.rank: {low: 1, high: 2}\n", "unknown key 'rank'"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_where_it_stands(problems, axes, message):
    found = problems(file(axes))
    assert any(message in problem for problem in found), found


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        (
            "{low: 2, high: 1}",
            "a range goes from a lower number to a higher one, this from 2 to 1; swap them",
        ),
        (
            "{low: 0, high: 1, log: true}",
            "a range with 'log' begins above 0; raise 'low', or leave 'log' out",
        ),
        (
            "{low: 1, high: 1}",
            "a range has more numbers than one, this only 1; put it into the base run instead",
        ),
        ("{low: -1.0e+308, high: 1.0e+308}", "nothing can be drawn evenly from -1e+308 to 1e+308"),
        ("{low: 1, high: 2.5, type: int}", "a range of integers has integers as its ends"),
        ("{low: 1}", "an axis has 'values', or 'low' and 'high'; give either"),
        ("{values: [1], low: 1, high: 2}", "an axis has 'values', or 'low' and 'high'; give either"),
    ],
)
def test_a_range_that_is_none_is_refused(problems, axis, message):
    (problem,) = problems(file(f"    algorithm.params.learning_rate: {axis}\n"))
    assert message in problem


def test_a_choice_that_stands_there_twice_is_refused(load, problems):
    (first, second) = problems(file("    algorithm.params.batch_size: [4, 8, 4, 4.0]\n"))
    assert "$.matrix.axes['algorithm.params.batch_size'][2]: the axis has 4 already; remove it" in first
    assert "[3]: the axis has 4.0 already" in second
    (problem,) = problems(file("    tags: {values: [[a], [b], [a]]}\n"))
    assert "$.matrix.axes.tags.values[2]: the axis has ['a'] already" in problem


def test_a_range_without_a_search_is_refused(problems):
    (problem,) = problems(file(search=""))
    assert problem.endswith(
        "a range can't be tried out in full; list its values, or choose a search: search: {kind: random}"
    )


def test_a_search_without_a_matrix_is_refused(problems):
    (problem,) = problems(HEAD.replace("base_run:", "run:") + "search: {kind: some}\n")
    assert "$.search: a search varies the axes of a matrix, and there is none" in problem


def test_what_the_search_says_of_the_space_is_told(problems):
    axes = "".join(
        f"    {key}: ['1', '2']\n" if key.endswith("notes") else f"    {key}: [1, 2]\n"
        for key in (
            "seed",
            "algorithm.params.batch_size",
            "algorithm.params.lora_rank",
            "algorithm.params.notes",
        )
    )
    (problem,) = problems(file(RATE + axes))
    assert "$.matrix.axes: too many axes: 5" in problem


def test_an_unknown_search_is_told_with_its_place(problems):
    (problem,) = problems(file(search="search: {kind: sme}\n"))
    assert "$.search.kind: no search is called 'sme'" in problem or "sme" in problem


def test_zip_doesnt_go_with_a_search(problems):
    axes = "    seed: [1, 2]\n    algorithm.params.batch_size: [1, 2]\n  zip: [[seed, algorithm.params.batch_size]]\n"
    (problem,) = problems(file(axes))
    assert "$.matrix.zip: a search chooses on each axis alone" in problem


def test_a_baseline_by_name_is_refused(problems):
    head = HEAD.replace("metadata: {", "metadata: {baseline: learning_rate-0.001, ")
    (problem,) = problems(file(head=head))
    assert "$.metadata.baseline: a search names its arms as it runs" in problem


def test_a_search_needs_something_to_go_by(problems):
    head = HEAD.replace("success_metric: val.mean_reward, ", "").replace(
        "name: val,", "name: val, split: test,"
    )
    (problem,) = problems(file(head=head))
    assert "$.search: a search goes by the success metric, and nothing is scored that decides" in problem


def test_a_test_entry_never_leads_a_search(problems):
    head = HEAD.replace("metadata: {", "metadata: {allow_test_selection: true, ").replace(
        "name: val,", "name: val, split: test,"
    )
    found = problems(file(head=head))
    assert any("a search goes by 'val', which is a 'test' entry" in problem for problem in found)
    (problem,) = problems(file(head=HEAD.replace("name: val,", "name: val, split: test,")))
    assert "allow_test_selection: true" not in problem
    assert "regardless of allow_test_selection; name the 'test' entry in confirm.benchmark" in problem


def test_a_search_that_stops_arms_needs_scores_in_training(load, problems):
    (problem,) = problems(file(search="search: {kind: stopping}\n"))
    assert (
        "$.search.kind: search 'stopping' stops arms by their scores in training, and 'val' has none"
        in problem
    )
    head = HEAD.replace("name: val,", "name: val, run_every: 2,")
    assert load(file(head=head, search="search: {kind: stopping}\n")).search.stops


# --- conditions -------------------------------------------------------------------------------------------------------


def conditional(when, more=""):
    return file(
        "    algorithm.kind: [sft, reinforce]\n"
        f"    algorithm.params.batch_size: {{values: [2, 4], when: {when}}}\n{more}"
    )


def test_a_condition_reads_another_axis(load):
    search = load(conditional("{algorithm.kind: sft}")).search
    assert [axis.when for axis in search.space.axes] == [{}, {"algorithm.kind": ("sft",)}]
    assert search.space.wrong({"algorithm.kind": "reinforce"}) is None
    assert "doesn't apply" in search.space.wrong(
        {"algorithm.kind": "reinforce", "algorithm.params.batch_size": 2}
    )
    assert "no value on" in search.space.wrong({"algorithm.kind": "sft"})
    names = [arm.name for arm in search.probes]
    assert names == ["kind-sft-batch_size-2", "kind-reinforce", "kind-sft-batch_size-4"]


def test_a_condition_that_the_base_run_decides_is_decided(load):
    always = load(conditional("{backend.kind: mock, algorithm.kind: sft}")).search
    assert always.space.axes[1].when == {"algorithm.kind": ("sft",)}
    never = load(conditional("{backend.kind: other}"))
    assert [axis.path for axis in never.search.space.axes] == ["algorithm.kind"]
    assert (
        "the axis 'algorithm.params.batch_size' applies to no arm: its condition never holds"
        in never.warnings
    )


@pytest.mark.parametrize(("accepted", "left"), [("99", None), ("[2.5, 8, 64]", (8,)), ("2", (2,))])
def test_a_condition_on_a_range_accepts_what_lies_in_it(load, accepted, left):
    rate = f"    algorithm.params.learning_rate: {{low: 0.1, high: 1, when: {{algorithm.params.lora_rank: {accepted}}}}}\n"
    axes = load(file(RANK + rate)).search.space.axes
    assert [axis.when for axis in axes[1:]] == (
        [] if left is None else [{"algorithm.params.lora_rank": left}]
    )


def test_a_condition_may_look_into_the_values_of_an_axis(load):
    axes = (
        "    algorithm: [{kind: sft, params: {}}, {kind: reinforce, params: {}}]\n"
        "    algorithm.params.batch_size: {values: [2], when: {algorithm.kind: sft}}\n"
    )
    search = load(file(axes)).search
    assert search.space.axes[1].when == {"algorithm": ({"kind": "sft", "params": {}},)}
    arm = search.tree({"algorithm": {"kind": "sft", "params": {}}, "algorithm.params.batch_size": 2})
    assert arm.tree["algorithm"] == {"kind": "sft", "params": {"batch_size": 2}}


def test_a_condition_on_an_axis_that_is_left_out_reads_the_base_run(load):
    more = "    algorithm.params.lora_rank: {values: [8], when: {algorithm.params.batch_size: 4}}\n"
    head = HEAD.replace("{kind: sft}", "{kind: sft, params: {batch_size: 4}}")
    text = conditional("{algorithm.kind: sft}", more).replace("[sft, reinforce]", "[sft]")
    search = load(text.replace(HEAD, head)).search
    assert search.space.axes[2].when == {"algorithm.params.batch_size": (4, None)}
    assert search.space.axes[2].applies({})


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("{algorithm.knd: sft}", "no arm has 'algorithm.knd'"),
        ("{algorithm: {kind: sft}}", "in a search a condition reads a value that one axis sets"),
    ],
)
def test_conditions_that_cant_be_told_are_refused(problems, when, message):
    found = problems(conditional(when))
    assert any(message in problem for problem in found), found
