"""`rename`, `map`, `filter` and `dedupe`."""

import sys
import types

import pytest

from evsys import Registry
from evsys.errors import ConfigError, DataError
from evsys_runtime.data import pipeline
from evsys_runtime.data.parse import RowProblem
from evsys_runtime.data.sources import source_hash
from evsys_std.transforms import Dedupe, Filter, Map, Rename

REGISTRY = Registry()


def build(kind, **params):
    return REGISTRY.build("transform", kind, params)


@pytest.fixture
def user_code(monkeypatch):
    module = types.ModuleType("project_code")
    module.shout = lambda row: {**row, "text": row["text"].upper()} if row["text"] else None
    module.count = lambda row: len(row)
    module.long = lambda row: len(row["text"]) > 2
    module.constant = 3
    monkeypatch.setitem(sys.modules, "project_code", module)
    return module


# --- rename -----------------------------------------------------------------------------------------------------


def test_columns_keep_their_place_and_can_swap_names():
    (out,) = Rename(columns={"a": "b", "b": "a"})([{"a": 1, "x": 0, "b": 2}])
    assert list(out.items()) == [("b", 1), ("x", 0), ("a", 2)]


def test_a_name_that_is_taken_is_refused_unless_it_may_be_replaced():
    with pytest.raises(RowProblem, match="a column 'b' is there already"):
        list(Rename(columns={"a": "b"})([{"a": 1, "b": 2}]))
    assert list(Rename(columns={"a": "b"}, overwrite=True)([{"a": 1, "b": 2}])) == [{"b": 1}]


def test_a_missing_old_name_is_refused_or_passed_over():
    with pytest.raises(RowProblem, match="no column 'a'; the row has b"):
        list(Rename(columns={"a": "c"})([{"b": 2}]))
    assert list(Rename(columns={"a": "c"}, missing="ignore")([{"b": 2}])) == [{"b": 2}]
    assert list(Rename(columns={"a": "b"}, missing="ignore")([{"b": 2}])) == [{"b": 2}]


def test_two_columns_cannot_get_one_name():
    with pytest.raises(ConfigError, match="two columns get the same new name"):
        build("rename", columns={"a": "c", "b": "c"})


# --- map --------------------------------------------------------------------------------------------------------


def test_changes_come_in_their_order():
    transform = build(
        "map",
        drop=["junk"],
        rename={"Question": "question"},
        set={"source": "bank"},
        strip=["question", "n"],
        lower=["question"],
        cast={"n": "int"},
    )
    (out,) = transform([{"Question": "  WHY? ", "n": " 3 ", "junk": 1}])
    assert out == {"question": "why?", "n": 3, "source": "bank"}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", "12", 12),
        ("int", 3.0, 3),
        ("int", None, None),
        ("float", "1.5", 1.5),
        ("float", 2, 2.0),
        ("str", 3, "3"),
        ("str", ["a"], '["a"]'),
        ("bool", "Yes", True),
        ("bool", "0", False),
        ("bool", False, False),
        ("json", '{"a": [1]}', {"a": [1]}),
        ("json", [1], [1]),
    ],
)
def test_casts(kind, value, expected):
    (out,) = build("map", cast={"a": kind})([{"a": value}])
    assert out == {"a": expected}
    assert type(out["a"]) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "1.5"),
        ("int", 1.5),
        ("int", "x"),
        ("int", [1]),
        ("float", "nan"),
        ("float", "1e999"),
        ("float", {}),
        ("bool", "maybe"),
        ("json", "{"),
    ],
)
def test_casts_round_nothing_and_guess_nothing(kind, value):
    with pytest.raises(RowProblem, match=f"column 'a' holds .* can't be cast to {kind}"):
        list(build("map", cast={"a": kind})([{"a": value}]))
    dropping = build("map", cast={"a": kind}, on_error="drop")
    assert list(dropping([{"a": value}])) == []
    assert dropping.dropped == {f"column 'a' can't be cast to {kind}": 1}


@pytest.mark.parametrize(
    "params", [{"strip": ["a"]}, {"lower": ["a"]}, {"cast": {"a": "int"}}, {"rename": {"a": "b"}}]
)
def test_a_missing_column_is_named(params):
    with pytest.raises(RowProblem, match="no column 'a'"):
        list(build("map", **params)([{"b": 1}]))


def test_only_texts_are_stripped():
    with pytest.raises(RowProblem, match="column 'a' is a number, not a string"):
        list(build("map", strip=["a"])([{"a": 1}]))


def test_a_function_changes_rows_or_leaves_them_out(user_code):
    transform = build("map", function="project_code.shout")
    assert list(transform([{"text": "hi"}, {"text": ""}])) == [{"text": "HI"}]
    assert transform.dropped == {"project_code.shout returned None": 1}
    assert list(build("map", function="project_code:shout")([{"text": "x"}])) == [{"text": "X"}]


def test_a_function_that_returns_no_row_is_named(user_code):
    with pytest.raises(RowProblem, match=r"project_code\.count returned a number, not a row"):
        list(build("map", function="project_code.count")([{"text": "hi"}]))


def test_what_a_function_raises_is_attributed_to_row_and_transform(user_code):
    stages = pipeline.build_stages([{"kind": "map", "params": {"function": "project_code.shout"}}], REGISTRY)
    with pytest.raises(DataError, match="transform 'map' failed after taking row 1: KeyError: 'text'"):
        list(pipeline.apply([{"text": "a"}, {"other": 1}], stages))
    assert stages[0].lineage.uses == {"project_code.shout": source_hash(user_code.shout)}


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({}, "nothing to do"),
        ({"function": "project_code.shout", "set": {"a": 1}}, "`function` can't be combined"),
        ({"function": "project_code.nothing"}, "'project_code' has no function 'nothing'"),
        ({"function": "project_code.constant"}, "something that can't be called"),
        ({"function": "no_such_module.f"}, "'no_such_module.f' can't be imported: ModuleNotFoundError"),
        ({"function": "shout"}, "'shout' is not a path of a function"),
        ({"cast": {"a": "date"}}, "cast.a"),
    ],
)
def test_map_parameters_that_make_no_sense_are_refused(user_code, params, problem):
    with pytest.raises(ConfigError, match=problem):
        build("map", **params)


# --- filter -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "value", "kept", "dropped"),
    [
        ("==", "b", ["b"], ["a", None]),
        ("!=", "b", ["a", 3], ["b"]),
        ("<", 3, [1, 2.5], [3, 4]),
        ("<=", 3, [3], [4]),
        (">", "b", ["c"], ["a", "b"]),
        (">=", 3, [3, 4], [2]),
        ("in", ["a", 1], ["a", 1], ["b"]),
        ("not_in", ["a"], ["b", ["a"]], ["a"]),
        ("contains", "el", ["hello", ["el"]], ["world", ["hello"]]),
        ("not_contains", "el", ["world"], ["hello"]),
        ("matches", r"^\d+$", ["12"], ["a1"]),
        ("not_matches", r"\d", ["a"], ["a1"]),
        ("exists", None, ["", 0], [None]),
        ("missing", None, [None], ["", 0]),
        ("min_length", 2, ["ab", [1, 2]], ["a", None]),
        ("max_length", 2, ["ab", []], ["abc", [1, 2, 3]]),
    ],
)
def test_operators(op, value, kept, dropped):
    transform = build("filter", conditions=[{"column": "a", "op": op, "value": value}])
    assert [row["a"] for row in transform([{"a": item} for item in [*kept, *dropped]])] == kept
    assert sum(transform.dropped.values()) == len(dropped)


@pytest.mark.parametrize("op", ["matches", "not_matches"])
def test_a_pattern_that_backtracks_without_end_is_stopped_at_its_row(op):
    condition = {"column": "text", "op": op, "value": r"^(a+)+$"}
    rows = [{"text": "aaa"}, {"text": "a" * 40 + "b"}, {"text": "b"}]
    stages = pipeline.build_stages(
        [{"kind": "filter", "params": {"conditions": [condition], "timeout_seconds": 0.1}}], REGISTRY
    )
    with pytest.raises(
        DataError,
        match=r"transform 'filter' failed after taking row 1: the pattern .* took longer than 0\.1 s on the 41 char",
    ):
        list(pipeline.apply(rows, stages))
    again = build("filter", conditions=[condition], timeout_seconds=5)
    assert list(again([rows[0], rows[2]])) == [rows[0 if op == "matches" else 2]]


@pytest.mark.parametrize("op", ["missing", "!=", "not_in", "not_contains", "not_matches"])
def test_a_column_that_is_not_there_meets_these(op):
    transform = build(
        "filter", conditions=[{"column": "a", "op": op, "value": ["x"] if op == "not_in" else "x"}]
    )
    assert list(transform([{"b": 1}])) == [{"b": 1}]


def test_a_column_that_is_not_there_meets_nothing_else():
    transform = build("filter", conditions=[{"column": "a.b", "op": "==", "value": 1}])
    assert list(transform([{"a": {}}, {"a": 3}, {"a": {"b": 1}}])) == [{"a": {"b": 1}}]
    assert transform.dropped == {"no column 'a.b'": 2}


def test_reasons_say_which_condition_was_not_met():
    transform = build("filter", where=[{"column": "n", "op": ">=", "value": 2}], max_length={"t": 3})
    rows = [{"n": 1, "t": "a"}, {"n": 2, "t": "long text"}, {"n": 2, "t": "abc"}, {"n": 0, "t": "long text"}]
    assert list(transform(rows)) == [rows[2]]
    assert transform.dropped == {"not: n >= 2": 2, "not: t max_length 3": 1}


def test_any_condition_may_be_enough():
    transform = build("filter", match="any", where=[{"column": "a"}, {"column": "b"}])
    assert list(transform([{"a": 1}, {"b": 1}, {"c": 1}])) == [{"a": 1}, {"b": 1}]
    assert transform.dropped == {"no column 'a' and no column 'b'": 1}


def test_a_function_decides(user_code):
    transform = build("filter", function="project_code.long")
    assert list(transform([{"text": "ab"}, {"text": "abc"}])) == [{"text": "abc"}]
    assert transform.dropped == {"project_code.long said no": 1}
    assert transform.uses == {"project_code.long": user_code.long}


@pytest.mark.parametrize(
    ("op", "value", "item", "problem"),
    [
        (">=", 2, "3", r"column 'a' is a string, which '>=' can't compare with 2; `map` with `cast`"),
        ("<", "b", 3, "column 'a' is a number"),
        ("contains", "x", 3, "'contains' needs a string or a list"),
        ("matches", "x", 3, "'matches' needs a string"),
        ("min_length", 2, 3, "'min_length' needs a string or a list"),
    ],
)
def test_types_that_do_not_compare_are_an_error_and_no_silent_no(op, value, item, problem):
    with pytest.raises(RowProblem, match=problem):
        list(build("filter", conditions=[{"column": "a", "op": op, "value": value}])([{"a": item}]))


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({}, "no condition"),
        ({"conditions": [{"column": "a", "op": "like"}]}, "op"),
        ({"conditions": [{"column": "a", "op": "in", "value": "abc"}]}, "`in` on 'a' needs a list"),
        ({"conditions": [{"column": "a", "op": "<"}]}, "needs a number or a string as `value`"),
        ({"conditions": [{"column": "a", "op": "matches", "value": "("}]}, "is not a regular expression"),
        ({"conditions": [{"column": "a", "op": "matches", "value": 3}]}, "3 is not a pattern"),
        ({"conditions": [{"column": "a", "op": "min_length", "value": -1}]}, "needs a whole number"),
        ({"min_length": {"a": 1.5}}, "min_length"),
    ],
)
def test_filter_parameters_that_make_no_sense_are_refused(params, problem):
    with pytest.raises(ConfigError, match=problem):
        build("filter", **params)


def test_without_a_function_the_lineage_names_none():
    assert Filter(min_length={"a": 1}).uses == {}
    assert Map(set={"a": 1}).uses == {}


# --- dedupe -----------------------------------------------------------------------------------------------------


def test_the_first_of_equal_rows_stays_and_rows_without_the_key_are_kept():
    rows = [{"q": "a", "n": 1}, {"q": "b"}, {"q": "a", "n": 2}, {"n": 3}, {"n": 4}, {"q": None}, {"q": None}]
    transform = Dedupe(key="q")
    assert list(transform(rows)) == [rows[0], rows[1], *rows[3:]]
    assert transform.dropped == {"same q as an earlier row": 1}


def test_several_columns_make_one_key():
    rows = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 2, "a": 1, "c": 4}, {"a": 1}]
    assert list(Dedupe(key=("a", "b"))(rows)) == [rows[0], rows[1], rows[3]]
    assert build("dedupe", columns=["a", "b"]).config.key == ("a", "b")


def test_without_a_key_whole_rows_are_compared_whatever_the_order_of_columns():
    rows = [{"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 1}]
    assert list(Dedupe()(rows)) == [rows[0], rows[2]]


def test_values_of_other_types_are_different():
    rows = [{"q": value} for value in ("1", 1, [1], {"": 1}, "[1]", True)]
    assert list(Dedupe(key="q")(rows)) == rows


def test_case_and_space_can_be_ignored():
    rows = [
        *({"q": "Where  is it? "}, {"q": "where is it?"}),
        *({"q": ["A b", {"c": "D", "n": 1}]}, {"q": ["a  B", {"c": "d ", "n": 1}]}),
    ]
    assert list(Dedupe(key="q", ignore_case=True, ignore_space=True)(rows)) == [rows[0], rows[2]]
    assert list(Dedupe(key="q")(rows)) == rows


def test_a_nested_column_can_be_the_key():
    rows = [{"m": {"id": 1}}, {"m": {"id": 1}, "x": 2}, {"m": {}}]
    assert list(Dedupe(key="m.id")(rows)) == [rows[0], rows[2]]


def test_an_empty_key_is_refused():
    with pytest.raises(ConfigError, match="key"):
        build("dedupe", key="")
