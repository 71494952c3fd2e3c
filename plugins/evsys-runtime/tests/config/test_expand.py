import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.errors import ConfigError
from evsys_runtime.config import trees
from evsys_runtime.config.arm_tree import ArmTree
from evsys_runtime.config.document import loads, parse
from evsys_runtime.config.expand import expand

BASE = """\
base_run:
  data: {path: train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 1e-3, batch_size: 4}}
  backend: {kind: mock}
"""


def arms_of(matrix: str, base: str = BASE) -> list[ArmTree]:
    return expand(loads(f"{base}matrix:\n{matrix}", "exp.yaml"))


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        expand(parse(text, "exp.yaml"))
    return [str(problem) for problem in caught.value.problems]


def matrix_refused(matrix: str, base: str = BASE) -> list[str]:
    return refused(f"{base}matrix:\n{matrix}")


def names(arms: list[ArmTree]) -> list[str]:
    return [arm.name for arm in arms]


# --- which form ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\n", "exp.yaml:1:1: $: expected exactly one of 'run', 'runs' and 'matrix'; found none of them"),
        ("run: {}\nruns: []\n", "exp.yaml:2:1: $.runs: expected exactly one of 'run', 'runs' and 'matrix'; found 'run' and 'runs'"),
        ("run: {}\nmatrix: {axes: {a: [1]}}\nruns: []\n", "found 'run' and 'runs' and 'matrix'"),
        ("run: {}\nbase_run: {}\n", "exp.yaml:2:1: $.base_run: 'base_run' belongs to a matrix; move it into 'run'"),
        ("run: 1\n", "exp.yaml:1:1: $.run: a run must be a mapping, got the number 1"),
        ("runs: {a: 1}\n", "exp.yaml:1:1: $.runs: 'runs' must be a list of runs, got a mapping"),
        ("runs: []\n", "$.runs: 'runs' must be a list of runs, got an empty list"),
        ("runs: [{seed: 1}, null]\n", "exp.yaml:1:19: $.runs[1]: a run must be a mapping, got null"),
        ("matrix: {axes: {seed: [1]}}\n", "$.matrix: the matrix has no 'base_run' to vary"),
        ("base_run: [1]\nmatrix: {axes: {seed: [1]}}\n", "$.base_run: a run must be a mapping, got a list"),
        ("base_run: {}\nmatrix: {base_run: {}, axes: {seed: [1]}}\n", "$.base_run: 'base_run' is given both inside the matrix and next to it"),
    ],
)  # fmt: skip
def test_exactly_one_form_is_taken(text: str, message: str):
    assert message in "\n".join(refused(text))


def test_a_run_is_one_arm_and_keeps_its_name():
    (arm,) = expand(loads("run: {name: My Run, seed: 3}"))
    assert (arm.name, arm.tree) == ("my-run", {"name": "my-run", "seed": 3})
    assert names(expand(loads("run: {seed: 3}"))) == ["run"]


def test_runs_are_arms_in_order_named_by_number_where_they_have_no_name():
    assert names(expand(loads("runs: [{seed: 1}, {name: b, seed: 2}, {seed: 3}]"))) == ["run-1", "b", "run-3"]


@pytest.mark.parametrize("beside", [True, False])
def test_the_base_run_stands_beside_the_matrix_or_inside_it(beside: bool):
    base = "base_run: {model: {name: m}}\n"
    text = (
        f"{base}matrix: {{axes: {{seed: [1, 2]}}}}\n"
        if beside
        else f"matrix:\n  {base}  axes: {{seed: [1, 2]}}\n"
    )
    arms = expand(loads(text))
    assert [arm.tree for arm in arms] == [
        {"model": {"name": "m"}, "seed": 1, "name": "seed-1"},
        {"model": {"name": "m"}, "seed": 2, "name": "seed-2"},
    ]
    assert (
        arms[0].origins.locate("$.model.name")
        == ("$.base_run" if beside else "$.matrix.base_run") + ".model.name"
    )


# --- the product -----------------------------------------------------------------------------------------------------


def test_nested_axes_give_exactly_the_product_all_distinct_in_the_order_of_the_file():
    axes = {"a": [1, 2, 3], "b.x": [1, 2], "b.y": [1, 2], "c.x.z": [1, 2, 3], "c.x.w": [1, 2, 3]}
    arms = arms_of(f"  axes: {json.dumps(axes)}\n")
    assert len(arms) == 108
    assert len({arm.digest for arm in arms}) == 108
    found = [tuple(trees.get(arm.tree, path.split(".")) for path in axes) for arm in arms]
    assert found == list(itertools.product(*axes.values()))


def test_numbers_of_axes_are_numbers_however_they_are_written():
    arms = arms_of("  axes: {algorithm.params.learning_rate: [1e-4, 2e-5, +1e5, .5]}\n")
    assert [arm.tree["algorithm"]["params"]["learning_rate"] for arm in arms] == [1e-4, 2e-5, 1e5, 0.5]


def test_run_in_front_of_an_axis_changes_nothing():
    assert [arm.tree for arm in arms_of("  axes: {run.seed: [1]}\n")] == [
        arm.tree for arm in arms_of("  axes: {seed: [1]}\n")
    ]


def test_an_axis_may_set_whole_parts_and_another_something_in_them_whichever_comes_first():
    whole = "algorithm: [{kind: sft, params: {a: 0}}, {kind: rl}]"
    inner = "algorithm.params.a: [1, 2]"
    for axes in (f"{whole}, {inner}", f"{inner}, {whole}"):
        found = {
            (arm.tree["algorithm"]["kind"], arm.tree["algorithm"]["params"]["a"])
            for arm in arms_of(f"  axes: {{{axes}}}\n")
        }
        assert found == {("sft", 1), ("sft", 2), ("rl", 1), ("rl", 2)}


def test_an_axis_reaches_into_lists():
    base = BASE.replace(
        "{path: train.jsonl}", "{path: t, transforms: [{kind: a}, {kind: sample, params: {n: 1}}]}"
    )
    for path in ("data.transforms[1].params.n", "data.transforms.1.params.n"):
        arms = arms_of(f"  axes: {{{json.dumps(path)}: [5, 6]}}\n", base)
        assert [arm.tree["data"]["transforms"][1]["params"]["n"] for arm in arms] == [5, 6]
        assert arms[0].tree["data"]["transforms"][0] is arms[1].tree["data"]["transforms"][0]


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "seed",
                "data.path",
                "data.n",
                "algorithm.params.x",
                "algorithm.params.y",
                "algorithm.kind",
                "model.name",
            ]
        ),
        st.lists(
            st.integers(0, 9) | st.text("ab", min_size=1, max_size=3), min_size=1, max_size=4, unique_by=repr
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_matrix_gives_the_product_in_order_with_distinct_names_and_shared_parts(axes: dict[str, list]):
    document = loads(f"{BASE}matrix: {json.dumps({'axes': axes})}\n")
    arms = expand(document)
    combinations = list(itertools.product(*axes.values()))
    assert [tuple(trees.get(arm.tree, path.split(".")) for path in axes) for arm in arms] == combinations
    assert len(set(names(arms))) == len({arm.digest for arm in arms}) == len(combinations)
    assert names(expand(document)) == names(arms)
    for arm, chosen in zip(arms, combinations, strict=True):
        for (path, values), value in zip(axes.items(), chosen, strict=True):
            place = arm.origins.locate("$." + path)
            assert (
                document.tree["matrix"]["axes"][path][int(place.rpartition("[")[2][:-1])] is value
                or value in values
            )
            assert place.startswith(f"$.matrix.axes{'.' + path if path.isidentifier() else [path]}")
    # As many objects as there are different parts: one for each combination of the axes below a key.
    for key in {path.split(".")[0] for path in axes}:
        below = [path for path in axes if path.split(".")[0] == key]
        distinct = len(list(itertools.product(*(axes[path] for path in below))))
        assert len({id(arm.tree[key]) for arm in arms}) <= distinct


def test_arms_share_what_they_have_in_common():
    arms = arms_of("  axes: {algorithm.params.learning_rate: [1, 2], seed: [1, 2, 3]}\n")
    assert len({id(arm.tree["data"]) for arm in arms}) == 1
    assert len({id(arm.tree["algorithm"]) for arm in arms}) == 2


def test_a_value_knows_where_it_came_from():
    arms = arms_of(
        "  axes:\n    run.seed: [7, 8]\n    algorithm.params.x:\n      values: [{deep: [1]}]\n      when: {algorithm.kind: sft}\n"
    )
    locate = arms[1].origins.locate
    assert locate("$.seed") == "$.matrix.axes['run.seed'][1]"
    assert locate("$.algorithm.params.x.deep[0]") == "$.matrix.axes['algorithm.params.x'].values[0].deep[0]"
    assert locate("$.algorithm.params.xy") == "$.base_run.algorithm.params.xy"
    assert locate("$.seedling") == "$.base_run.seedling"
    assert locate("$") == "$.base_run"


# --- conditions and zip ----------------------------------------------------------------------------------------------


def test_a_conditional_axis_is_left_out_where_its_condition_does_not_hold():
    arms = arms_of(
        "  axes:\n"
        "    algorithm.params.beta: {values: [1, 2], when: {algorithm.kind: dpo}}\n"
        "    algorithm.kind: [sft, dpo]\n"
    )
    found = [(arm.tree["algorithm"]["kind"], arm.tree["algorithm"]["params"].get("beta")) for arm in arms]
    assert found == [("sft", None), ("dpo", 1), ("dpo", 2)]
    assert names(arms) == ["kind-sft", "beta-1-kind-dpo", "beta-2-kind-dpo"]


def test_a_condition_reads_the_base_run_too_takes_lists_and_needs_all_of_its_paths():
    matrix = "  axes:\n    seed: [1, 2, 3]\n    tag.x: {{values: [9], when: {{seed: [1, 3], backend.kind: {kind}}}}}\n"
    assert ["tag" in arm.tree for arm in arms_of(matrix.format(kind="mock"))] == [True, False, True]
    assert ["tag" in arm.tree for arm in arms_of(matrix.format(kind="[mock, local]"))] == [True, False, True]
    assert ["tag" in arm.tree for arm in arms_of(matrix.format(kind="local"))] == [False, False, False]


def test_true_is_not_one_in_a_condition():
    arms = arms_of("  axes: {x.a: [1, true], y: {values: [5], when: {x.a: true}}}\n")
    assert ["y" in arm.tree for arm in arms] == [False, True]


def test_conditions_may_follow_from_each_other():
    arms = arms_of(
        "  axes:\n"
        "    c: {values: [1, 2], when: {b: 1}}\n"
        "    b: {values: [1, 2], when: {a: 1}}\n"
        "    a: [1, 2]\n"
    )
    assert [tuple(arm.tree.get(key) for key in "abc") for arm in arms] == [
        (1, 1, 1),
        (1, 1, 2),
        (1, 2, None),
        (2, None, None),
    ]


def test_conditions_in_a_circle_are_refused():
    found = matrix_refused(
        "  axes:\n    a: {values: [1], when: {b: 1}}\n    b: {values: [1], when: {a: 1}}\n"
    )
    assert found == [
        "exp.yaml:8:5: $.matrix.axes.a: the conditions of axes wait for each other; remove one `when`"
    ]


def test_a_condition_on_what_no_arm_has_is_refused_with_the_nearest_path():
    found = matrix_refused("  axes:\n    seed: {values: [1], when: {algorithm.knd: sft}}\n")
    assert found == [
        "exp.yaml:8:32: $.matrix.axes.seed.when['algorithm.knd']: no arm has 'algorithm.knd'; did you mean 'algorithm.kind'?"
    ]


def test_zipped_axes_advance_together():
    arms = arms_of("  axes: {a: [1, 2], s: [0, 1], run.b: [3, 4]}\n  zip: [[a, b]]\n")
    assert [(arm.tree["a"], arm.tree["b"], arm.tree["s"]) for arm in arms] == [
        (1, 3, 0),
        (1, 3, 1),
        (2, 4, 0),
        (2, 4, 1),
    ]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("  axes: {a: [1, 2], b: [3]}\n  zip: [[a, b]]\n", "$.matrix.zip[0]: zipped axes need equally many values: a has 2, b has 1"),
        ("  axes: {alpha: [1, 2], b: [3]}\n  zip: [[alpa, b]]\n", "$.matrix.zip[0][0]: there is no axis 'alpa'; did you mean 'alpha'?"),
        ("  axes: {a: [1], b: [3]}\n  zip: [[a, b], [b, a]]\n", "$.matrix.zip[1][0]: the axis 'b' is zipped already"),
        ("  axes: {}\n", "$.matrix.axes: there is no axis"),
        ("  axes: {a: []}\n", "$.matrix.axes.a: the axis has no values"),
        ("  axes: {run.seed: [1], seed: [2]}\n", "$.matrix.axes.seed: this is the same axis as 'run.seed'"),
        ("  axes: {'a..b': [1]}\n", "$.matrix.axes['a..b']: 'a..b' is not a path"),
        ("  axes: {model.name.x: [1]}\n", "$.matrix.axes['model.name.x']: the axis can't be set: model.name is text, so 'x' can't be set in it"),
        ("  axes: {seed: 3}\n", "$.matrix.axes.seed: expected a list or a mapping, got 3; write [3]"),
        ("  axes: {seed: {vals: [3]}}\n", "$.matrix.axes.seed"),
        ("  axis: {seed: [3]}\n", "$.matrix.axis: unknown key 'axis'; did you mean 'axes'?"),
    ],
)  # fmt: skip
def test_a_matrix_that_makes_no_sense_is_refused(matrix: str, message: str):
    assert message in "\n".join(matrix_refused(matrix))


def test_more_arms_than_anybody_means_are_refused_before_they_are_built():
    axes = ", ".join(f"a{n}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for n in range(12))
    assert (
        "$.matrix.axes: the axes give 1,000,000,000,000 arms; at most 100,000 are accepted"
        in matrix_refused(f"  axes: {{{axes}}}\n")[0]
    )


def test_too_many_conditional_arms_are_refused_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("evsys_runtime.config.grid.MAX_ARMS", 5)
    axes = "{a: [1, 2, 3], b: [1, 2, 3], c: {values: [1], when: {a: 1}}}"
    assert "the axes give too many arms" in matrix_refused(f"  axes: {axes}\n")[0]


# --- names and twins -------------------------------------------------------------------------------------------------


def test_default_names_hold_each_axis_and_its_value():
    arms = arms_of(
        "  axes: {algorithm.params.learning_rate: [2e-5, 0.001], model.name: [evsys/tiny, Other Model]}\n"
    )
    assert names(arms) == [
        "learning_rate-2e-05-name-evsys-tiny",
        "learning_rate-2e-05-name-other-model",
        "learning_rate-0.001-name-evsys-tiny",
        "learning_rate-0.001-name-other-model",
    ]


def test_a_negative_value_keeps_its_sign():
    axis = "  axes: {algorithm.params.shift: [-1, 1, -0.5]}\n"
    assert names(arms_of(axis)) == ["shift-minus-1", "shift-1", "shift-minus-0.5"]
    template = "  name_template: 's-{algorithm.params.shift}'\n"
    assert names(arms_of(axis + template)) == ["s-minus-1", "s-1", "s-minus-0.5"]


def test_axes_with_the_same_last_part_are_told_apart():
    assert names(arms_of("  axes: {model.name: [m], teacher.model.name: [t]}\n")) == [
        "model-name-m-teacher-model-name-t"
    ]


def test_values_without_a_short_text_are_numbered():
    arms = arms_of(
        f"  axes: {{data.path: [a/x.jsonl, a-x.jsonl, {'y' * 60}], tags: [[a], [b]]}}\n".replace(
            "tags", "notes"
        )
    )
    assert names(arms)[:3] == ["path-0-notes-0", "path-0-notes-1", "path-1-notes-0"]
    assert names(arms)[-1] == "path-2-notes-1"


def test_mappings_are_named_by_their_kind_or_name():
    assert names(arms_of("  axes: {algorithm: [{kind: sft}, {kind: rl}]}\n")) == [
        "algorithm-sft",
        "algorithm-rl",
    ]


def test_long_names_are_cut_and_stay_distinct():
    axes = {f"algorithm.params.parameter_number_{n}": [1, 2] for n in range(6)}
    found = names(arms_of(f"  axes: {json.dumps(axes)}\n"))
    assert len(set(found)) == 64
    assert max(map(len, found)) <= 82


def test_the_name_of_the_base_run_goes_in_front():
    assert names(arms_of("  axes: {seed: [1, 2]}\n", BASE + "  name: Tiny\n")) == [
        "tiny-seed-1",
        "tiny-seed-2",
    ]


def test_a_template_names_arms_by_any_value():
    arms = arms_of(
        "  axes: {algorithm.params.learning_rate: [1e-4, 2e-5], run.seed: [1]}\n"
        "  name_template: 'LR {algorithm.params.learning_rate} {{x}} {run.seed} on {backend.kind}'\n"
    )
    assert names(arms) == ["lr-0.0001-x-1-on-mock", "lr-2e-05-x-1-on-mock"]


def test_an_axis_on_the_name_names_the_arms():
    arms = arms_of("  axes: {name: [Small, Large], seed: [1, 2]}\n  zip: [[name, seed]]\n")
    assert [(arm.name, arm.tree["seed"]) for arm in arms] == [("small", 1), ("large", 2)]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("x-{algorithm.params.learnin_rate}", "$.matrix.name_template: there is no 'algorithm.params.learnin_rate' in a run; did you mean 'algorithm.params.learning_rate'?"),
        ("x-{", "$.matrix.name_template: a '{' is alone"),
        ("x-{a..b}", "$.matrix.name_template: 'a..b' is not a path"),
        ("same", "two arms are called 'same'; name every axis in 'name_template'"),
    ],
)  # fmt: skip
def test_templates_that_cannot_name_the_arms_are_refused(template: str, message: str):
    found = matrix_refused(
        f"  axes: {{algorithm.params.learning_rate: [1, 2]}}\n  name_template: '{template}'\n"
    )
    assert message in "\n".join(found)


def test_two_arms_with_one_name_are_refused_at_the_value_that_tells_them_apart():
    found = matrix_refused(
        "  axes:\n    seed: [1, 2]\n    backend.kind: [a, b]\n  name_template: 's{seed}'\n"
    )
    assert found == [
        "exp.yaml:9:23: $.matrix.axes['backend.kind'][1]: two arms are called 's1'; name every axis in 'name_template'",
        "exp.yaml:9:23: $.matrix.axes['backend.kind'][1]: two arms are called 's2'; name every axis in 'name_template'",
    ]


def test_two_runs_with_one_name_are_refused_whatever_their_case():
    found = refused("runs:\n  - {name: A, seed: 1}\n  - {name: a, seed: 2}\n")
    assert found == ["exp.yaml:3:6: $.runs[1].name: two arms are called 'a'; give each run a name of its own"]


def test_the_same_run_twice_is_refused():
    found = refused("runs:\n  - {name: a, seed: 1, tags: [x]}\n  - {name: b, seed: 1.0}\n")
    assert found == [
        "exp.yaml:3:5: $.runs[1]: the arm 'b' is the same run as 'a'; remove one; 'n_repeats' repeats each arm over seeds"
    ]


def test_the_same_value_twice_on_an_axis_is_refused_where_it_stands():
    found = matrix_refused("  axes:\n    algorithm.params.learning_rate: [1e-4, 2e-4, 0.0001]\n")
    assert len(found) == 1
    assert found[0].startswith("exp.yaml:8:50: $.matrix.axes['algorithm.params.learning_rate'][2]: the arm ")


def test_every_problem_of_the_expansion_is_reported_at_once():
    found = matrix_refused("  axes: {a: [], b: [], 'c..d': [1]}\n  zip: [[x]]\n  name_template: '{'\n")
    assert len(found) >= 4


def test_problems_of_the_file_come_with_those_of_the_expansion():
    assert len(refused("run: {seed: 1, seed: 2}\nruns: []\n")) == 3


def test_a_digest_depends_on_what_is_run_and_not_on_what_it_is_called():
    def digest(text: str) -> str:
        return expand(loads(f"run: {text}"))[0].digest

    assert digest("{name: a, seed: 1, tags: [x]}") == digest("{name: b, seed: 1}") == digest("{seed: 1.0}")
    assert digest("{seed: 1}") != digest("{seed: 2}")
    assert digest("{seed: 1}").startswith("sha256:")
