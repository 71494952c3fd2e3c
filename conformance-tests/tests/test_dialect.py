"""The suite's own reading of JSON Schema, beside that of jsonschema, on the schemas of real Configs."""

from typing import Literal

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from evsys import option, schema_for_config
from evsys_conformance.dialect import accepts, property_of, values


@attrs.frozen(kw_only=True)
class Inner:
    kind: Literal["inner"] = "inner"
    size: int = option(1, "of it", ge=1, le=9)


@attrs.frozen(kw_only=True)
class Other:
    kind: Literal["other"] = "other"
    words: tuple[str, ...] = option((), "of it", min_len=0)


@attrs.frozen(kw_only=True)
class Everything:
    rate: float = option(0.5, "a rate", gt=0, lt=1)
    count: int = option(3, "a count", ge=0)
    choice: Literal["a", "b", 3, None] = "a"
    name: str = option("x", "a name", min_len=1)
    code: str = attrs.field(default="ab", validator=attrs.validators.matches_re(r"[a-z]{2,4}"))
    flag: bool = False
    maybe: float | None = None
    pair: tuple[int, str] = (1, "a")
    many: list[int] = option(attrs.Factory(list), "numbers", min_len=0)
    table: dict[str, float] = attrs.field(factory=dict)
    inner: Inner | Other | None = None
    inners: list[Inner] = attrs.field(factory=list)


SCHEMA = schema_for_config(Everything)
ORACLE = Draft202012Validator(SCHEMA)
FEW = settings(derandomize=True, deadline=None, max_examples=60, database=None)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(-2, 2)
    | st.sampled_from(["", "a", "ab", "inner"]),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "size", "words", "x"]), inside, max_size=3)
    ),
    max_leaves=6,
)


@FEW
@given(values(SCHEMA))
def test_what_is_drawn_from_a_schema_is_valid(tree):
    assert accepts(SCHEMA, tree)
    assert list(ORACLE.iter_errors(tree)) == []


@FEW
@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "unknown"]), ANYTHING, max_size=4))
def test_any_tree_is_judged_as_jsonschema_judges_it(tree):
    assert accepts(SCHEMA, tree) == ORACLE.is_valid(tree)


@pytest.mark.parametrize("name", SCHEMA["properties"])
def test_every_property_is_drawn(name):
    seen = []

    @FEW
    @given(values(property_of(SCHEMA, name), SCHEMA))
    def draw(value):
        seen.append(repr(value))

    draw()
    assert seen
    assert len(set(seen)) > 1


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "number", "multipleOf": 0.5}, 1.5, 1.25),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [1, 2], [1, 1]),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, [1], [1, 2]),
        ({"allOf": [{"type": "integer"}, {"minimum": 2}]}, 2, 1),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 1, 2),
        ({"not": {"type": "null"}}, 1, None),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, {"ab": 1}, {"b": 1}),
        ({"type": "object", "minProperties": 1}, {"a": 1}, {}),
        ({"const": 1}, 1, True),
        ({"enum": [True]}, True, 1),
        ({"type": "integer"}, 2.0, 2.5),
    ],
)
def test_words_that_pydantic_uses_mean_what_they_mean(schema, right, wrong):
    assert accepts(schema, right)
    assert not accepts(schema, wrong)
    assert Draft202012Validator(schema).is_valid(right)
    assert not Draft202012Validator(schema).is_valid(wrong)
