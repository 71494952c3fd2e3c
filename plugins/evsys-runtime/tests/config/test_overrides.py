import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.errors import ConfigError
from evsys_runtime.config import overrides, trees
from evsys_runtime.config.document import Document, loads
from evsys_runtime.config.expand import expand
from evsys_runtime.config.report import Report


def applied(text: str, *sets: str) -> Document:
    report = Report()
    document = overrides.apply(loads(text, "exp.yaml"), sets, report)
    report.raise_if_any()
    return document


def refused(text: str, *sets: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        applied(text, *sets)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("3", 3), ("[1, 2]", [1, 2]), ("{a: on}", {"a": "on"}), ("text", "text"), ("'3'", "3"), ("", None), ("a=b", "a=b"), ("true", True)],
)  # fmt: skip
def test_values_are_yaml(text: str, value: object):
    assert (
        applied("run: {seed: 1}", f"run.algorithm.params.x={text}").tree["run"]["algorithm"]["params"]["x"]
        == value
    )


def test_the_document_itself_is_not_changed():
    document = loads("run: {seed: 1}")
    overrides.apply(document, ["run.seed=2"], Report())
    assert document.tree == {"run": {"seed": 1}}


def test_later_overrides_win_and_paths_of_the_file_work():
    tree = applied(
        "runs: [{seed: 1}, {seed: 2}]\nname: x", "runs[1].seed=5", "name=y", "name=z", "runs.0.tags=[a]"
    ).tree
    assert tree == {"runs": [{"seed": 1, "tags": ["a"]}, {"seed": 5}], "name": "z"}


def test_run_means_every_arm_whichever_way_the_arms_are_given():
    assert applied("run: {seed: 1}", "run.seed=9").tree == {"run": {"seed": 9}}
    assert applied("runs: [{seed: 1}, {}]", "run.seed=9").tree == {"runs": [{"seed": 9}, {"seed": 9}]}
    beside = applied("base_run: {}\nmatrix: {axes: {tags: [a]}}", "run.seed=9").tree
    assert beside["base_run"] == {"seed": 9}
    within = applied("matrix: {axes: {tags: [a]}, base_run: {}}", "run.seed=9").tree
    assert within["matrix"]["base_run"] == {"seed": 9}
    named = applied("matrix: {axes: {tags: [a]}, base_run: {}}", "base_run.seed=9").tree
    assert named == within


def test_run_does_not_silently_lose_against_an_axis():
    text = "base_run: {}\nmatrix: {axes: {run.seed: [1, 2]}}"
    (found,) = refused(text, "run.seed=9")
    assert found == (
        "--set run.seed: the axis 'run.seed' of the matrix varies this, so setting it changes no arm; "
        "set the axis: --set matrix.axes.run.seed=[...]"
    )


def test_setting_what_an_axis_varies_a_part_of_is_fine():
    text = "base_run: {}\nmatrix: {axes: {algorithm.params.x: [1]}}"
    (arm,) = expand(loads(text), ["run.algorithm={kind: rl}"])
    assert arm.tree["algorithm"] == {"kind": "rl", "params": {"x": 1}}


@pytest.mark.parametrize("path", ["matrix.axes.run.seed", "matrix.axes.seed", "matrix.axes['run.seed']"])
def test_an_axis_is_set_by_any_spelling_of_its_path(path: str):
    tree = applied("base_run: {}\nmatrix: {axes: {run.seed: [1, 2]}}", f"{path}=[3]").tree
    assert tree["matrix"]["axes"] == {"run.seed": [3]}


def test_a_new_axis_gets_its_dotted_path():
    tree = applied("base_run: {}\nmatrix: {axes: {seed: [1]}}", "matrix.axes.algorithm.params.x=[3]").tree
    assert tree["matrix"]["axes"] == {"seed": [1], "algorithm.params.x": [3]}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("run.seed", "--set run.seed: it has no '='; write --set PATH=VALUE"),
        ("rn.seed=1", "--set rn.seed: there is no key 'rn'; did you mean 'run'?"),
        ("algorithm.params.x=1", "--set algorithm.params.x: there is no key 'algorithm'; did you mean run.algorithm.params.x?"),
        ("zzz=1", "there is no key 'zzz'; the file's keys: version, name,"),
        ("run..seed=1", "'run..seed' is not a path"),
        ("name.x=1", "--set name.x: name is text, so 'x' can't be set in it"),
        ("run.seed=[1", "--set run.seed: not valid YAML"),
        ("run.seed=.nan", ".nan is not a finite number"),
        ("run.seed=!foo x", "the tag !foo is not accepted"),
    ],
)  # fmt: skip
def test_what_cannot_be_set_is_refused(override: str, message: str):
    assert message in refused("name: x\nrun: {seed: 1}", override)[0]


def test_every_bad_override_is_reported():
    assert len(refused("run: {}", "a=1", "b=1", "run.seed")) == 3


def test_a_problem_in_a_value_that_was_set_names_the_override():
    document = applied("run: {seed: 1}", "run.model={name: [1]}")
    assert (
        str(document.problem("$.run.model.name", "expected text"))
        == "--set run.model: $.run.model.name: expected text"
    )
    assert str(document.problem("$.run.seed", "bad")) == "exp.yaml:1:7: $.run.seed: bad"


PATHS = st.lists(st.text("abcxyz", min_size=1, max_size=4), min_size=1, max_size=4)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abc 1e-4:#", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(PATHS, VALUES)
def test_any_value_can_be_set_anywhere_in_a_run_and_nothing_else_changes(path: list[str], value: object):
    text = "name: x\nrun: {seed: 1, model: {name: m}}\n"
    dotted = ".".join(path)
    tree = applied(text, f"run.{dotted}={json.dumps(value)}").tree
    assert trees.get(tree, ("run", *path)) == value
    assert tree["name"] == "x"
    assert {key: item for key, item in tree["run"].items() if key != path[0]} == {
        key: item for key, item in {"seed": 1, "model": {"name": "m"}}.items() if key != path[0]
    }
